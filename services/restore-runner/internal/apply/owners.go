package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// maxLinkAttempts is how often owner references are tried to be added to an object that others change all
// the time.
const maxLinkAttempts = 20

// errGone means that the object is not there any more.
var errGone = errors.New("the object is gone")

// Orphan is an object that lacks owner references.
type Orphan struct {
	Target
	UID types.UID
	// Version is the resourceVersion at which the object had the owner references Base, "" if that
	// is unknown.
	Version string
	Base    []any
	// Missing are the references to add, with the identities of now.
	Missing []any
}

// Adopted is what came of adding owner references.
type Adopted struct {
	// Notes name the references that were left out, with the reason: a second controller, or an owner
	// that is gone.
	Notes []string
	// Unblocked reports that the references were written without blockOwnerDeletion, which the API
	// server did not let this client set.
	Unblocked bool
}

// Adopt adds owner references to those that the object has, and takes none away: controllers add
// theirs meanwhile.
func (c *Client) Adopt(ctx context.Context, o Orphan) (out Adopted, err error) {
	if c.dry != nil {
		return out, nil
	}
	for range maxLinkAttempts {
		if o.Version == "" {
			if err = c.readReferences(ctx, &o); errors.Is(err, errGone) {
				out.Notes = []string{"owner references are not added: the object is gone"}
				return out, nil
			} else if err != nil {
				return out, err
			}
		}
		var fit []any
		if fit, out.Notes = fittingReferences(o.Base, o.Missing); len(fit) == 0 {
			return out, nil
		}
		switch err = c.writeOwners(ctx, &o, slices.Concat(o.Base, fit)); {
		case err == nil:
			return out, nil
		case ForbidsBlocking(err) && !out.Unblocked:
			o.Missing, out.Unblocked = unblockReferences(o.Missing), true
		case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
			tested := o.Version
			// A failed "test" of the patch and a refused value are both reported as Invalid; a read of the
			// object distinguishes them.
			if o.Version = ""; apierrors.IsInvalid(err) && c.readReferences(ctx, &o) == nil && o.Version == tested {
				return out, err
			}
		default:
			return out, err
		}
	}
	return out, err
}

// readReferences reads what owner references the object has, and at which version.
func (c *Client) readReferences(ctx context.Context, o *Orphan) error {
	raw, _, err := c.sendWithRetry(ctx, confirmFree, func() *rest.Request {
		return c.rest.Get().AbsPath(o.resourcePath(o.Name)...).SetHeader("Accept", metadataOnly)
	})
	if apierrors.IsNotFound(err) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("read the object: %w", err)
	}
	live, err := jsonlimit.UnmarshalObject(raw)
	if err != nil {
		return fmt.Errorf("decode the object: %w", err)
	}
	meta := memberObject(live, "metadata")
	if types.UID(textOf(meta, "uid")) != o.UID {
		return errGone // and another one of that name came
	}
	refs, ok := meta["ownerReferences"].([]any)
	if !ok {
		refs = nil
	}
	o.Version, o.Base = textOf(meta, "resourceVersion"), refs
	return nil
}

// writeOwners replaces the owner references of the very object and version that was looked at.
func (c *Client) writeOwners(ctx context.Context, o *Orphan, refs []any) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	body, err := json.Marshal([]operation{
		{"test", "/metadata/uid", o.UID}, {"test", "/metadata/resourceVersion", o.Version}, {"add", "/metadata/ownerReferences", refs},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, _, err = c.sendWithRetry(ctx, c.confirm, func() *rest.Request {
		return c.rest.Patch(types.JSONPatchType).AbsPath(o.resourcePath(o.Name)...).Param("fieldManager", string(c.manager)).SetHeader("Accept", metadataOnly).Body(body)
	})
	return err
}

// fittingReferences returns the references that an object with those of base still lacks and can have.
func fittingReferences(base, missing []any) (fit []any, notes []string) {
	has, controller := map[string]bool{}, ""
	for _, ref := range base {
		if member, ok := ref.(map[string]any); ok {
			has[textOf(member, "uid")] = true
			if member["controller"] == true {
				controller = textOf(member, "kind") + " " + textOf(member, "name")
			}
		}
	}
	for _, ref := range missing {
		member, ok := ref.(map[string]any)
		name := textOf(member, "kind") + " " + textOf(member, "name")
		switch {
		case !ok || has[textOf(member, "uid")]: // a controller was faster, or an earlier holder of the restore
		case member["controller"] == true && controller != "":
			notes = append(notes, "owner reference to "+name+" left out: "+controller+" controls the object")
		default:
			fit = append(fit, ref)
			has[textOf(member, "uid")] = true
			if member["controller"] == true {
				controller = name
			}
		}
	}
	return fit, notes
}

// ForbidsBlocking reports that the API server, by its admission plugin
// OwnerReferencesPermissionEnforcement, refuses blockOwnerDeletion: it needs the right to update
// the finalizers of the owner.
func ForbidsBlocking(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "blockOwnerDeletion")
}

// unblockReferences returns the references without blockOwnerDeletion.
func unblockReferences(refs []any) []any {
	out := slices.Clone(refs)
	for i, ref := range out {
		if member, ok := ref.(map[string]any); ok {
			member = maps.Clone(member)
			delete(member, "blockOwnerDeletion")
			out[i] = member
		}
	}
	return out
}
