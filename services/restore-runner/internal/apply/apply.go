package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// Action is what became of an object, in the words of Velero's restore resource list.
type Action string

// The actions.
const (
	Created Action = "created"
	Updated Action = "updated"
	Failed  Action = "failed"
	Skipped Action = "skipped"
)

// Intent is what is about to be done to an object that was there before.
type Intent string

// The intents.
const (
	// IntentUpdate is a patch that gives the object its state in the backup.
	IntentUpdate Intent = "update"
	// IntentLabel is to mark an unchanged object as this restore's.
	IntentLabel Intent = "label"
)

const (
	// propagation is how long a kind or account that was just created may be unknown to the server.
	propagation = 15 * time.Second
	// maxRecreates is how often an object that vanishes between create and read is tried again.
	maxRecreates = 3
)

// Request is one object to bring into the cluster.
type Request struct {
	Target
	// Kind is for messages.
	Kind string
	// Object is ready to be created. Apply may change it.
	Object map[string]any
	// Status is the stored status, which Object gets where the API server requires one.
	Status any
	// Normalize makes a live object comparable with Object, as reset.Normalize does.
	Normalize func(live map[string]any)
	// CreateOnly leaves an object that exists as it is, and compares nothing.
	CreateOnly bool
	// Update follows existing-resource policy "update"; otherwise existing objects that differ stay
	// as they are.
	Update bool
	// Resumed reports that this restore was interrupted before, or that an earlier request for the
	// object failed: what has its field manager counts as created by it. Otherwise that needs a
	// creation whose answer was lost.
	Resumed bool
	// Taken reports that another object of this restore has the name: what exists is that one, and
	// is left as it is.
	Taken bool
	// Intend is called before something is done to an object that was there before, and returns
	// when that is durable. Nil needs no call.
	Intend func(ctx context.Context, intent Intent) error
	// Intended is what an earlier holder was about to do to the object, "" for nothing: it was not
	// created by this restore.
	Intended Intent
	// New reports that the kind was defined only just now, so that the server may not serve it yet.
	New bool
	// Injections name what admission adds to Pods.
	Injections InjectionRules
	// Converted reports that Object has another version than it was stored in: fields that this one does
	// not have are left out with a warning.
	Converted bool
	// MappedFrom returns the namespace of the backup that is mapped to one of the cluster, "" where none
	// is. Nil means that nothing is mapped.
	MappedFrom func(target string) string
	// NoCreate reports that Object is fit only for one that exists already. Instead of creating it,
	// Apply fails with ErrGoing when there is none, or one that is being deleted.
	NoCreate bool
	// Present reports that the object was seen in the cluster, where a refused creation has a cost:
	// Apply reads it first, and creates it only when it is gone.
	Present bool

	without   string         // what it is created without, and why
	dropped   []injectedPart // left out, since admission adds it
	unblocked bool           // blockOwnerDeletion was taken off
	regrants  int            // how often accounts were tried to be added
}

// Unblocked is the message about an object whose owner references lack blockOwnerDeletion.
const Unblocked = "blockOwnerDeletion of its owner references is left out: setting it needs the right to update the finalizers of the owner"

// adaptObject changes the object so that the API server does not refuse its creation with this error again.
// False where nothing changed.
func (r *Request) adaptObject(err error) bool {
	switch {
	case ForbidsBlocking(err) && !r.unblocked:
		r.unblockOwners()
	case requiresStatus(err) && r.Status != nil && r.Object["status"] == nil:
		r.Object["status"] = r.Status
	default:
		return r.Converted && r.dropUnknown(err)
	}
	return true
}

// unblockOwners takes blockOwnerDeletion off the owner references.
func (r *Request) unblockOwners() {
	r.unblocked = true
	r.noteChange(Unblocked)
	if meta := memberObject(r.Object, "metadata"); meta != nil {
		if refs, ok := meta["ownerReferences"].([]any); ok {
			meta["ownerReferences"] = unblockReferences(refs)
		}
	}
}

// ErrGoing is the failure of a Request with NoCreate whose object is not there, or is going away.
var ErrGoing = errors.New("the existing object is gone, or being deleted")

// Result is what became of a Request.
type Result struct {
	Action Action
	// UID is the object's in the cluster, "" when it is not there or unknown.
	UID types.UID
	// Version is the resourceVersion at which it was created, "" where that is unknown.
	Version string
	// Fresh reports that the object is this restore's own: only then may its metadata be completed.
	Fresh bool
	// Live is the object that was there, as it was read; nil where it was not read.
	Live []byte
	// Fields are the paths that were changed, or that differ, of an existing object; in a dry run
	// alone.
	Fields []string
	// Warning is why the object is not as in the backup, without a failure.
	Warning string
	// Refusal is why the API server refused to update the object, with Action Failed.
	Refusal error
	// Err is the failure, with Action Failed.
	Err error
}

// Apply brings one object into the cluster.
func (c *Client) Apply(ctx context.Context, r Request) Result {
	body, err := json.Marshal(r.Object)
	if err != nil {
		return failedResult(fmt.Errorf("encode: %w", err))
	}
	if c.dry.isFreshNamespace(r.Target) {
		return Result{Action: Skipped}
	}
	if r.NoCreate || r.Present || c.dry != nil {
		if result := c.meetExisting(ctx, &r); r.NoCreate || !errors.Is(result.Err, ErrGoing) {
			return result
		}
	}
	if c.dry != nil && r.Taken {
		return Result{Action: Failed} // it stays out unless both are equal
	}
	for attempt := 0; ; attempt++ {
		id, maybe, err := c.createOncePropagated(ctx, &r, body)
		switch {
		case err == nil:
			c.checkInjected(ctx, &r)
			return Result{Action: Created, UID: id.UID, Version: id.Version, Fresh: true, Warning: r.without}
		case r.adaptObject(err):
			if body, err = json.Marshal(r.Object); err != nil {
				return failedResult(fmt.Errorf("encode: %w", err))
			}
			continue
		case !MayExist(err):
			return failedResult(err)
		}
		live, getErr := c.getObject(ctx, r.Target)
		if apierrors.IsNotFound(getErr) && attempt < maxRecreates && apierrors.IsAlreadyExists(err) {
			continue
		}
		if apierrors.IsNotFound(getErr) {
			if answered, ok := r.answerRefusal(err); ok {
				body = answered
				continue
			}
		}
		if getErr != nil {
			if !apierrors.IsAlreadyExists(err) {
				return failedResult(err) // the object is not there after all, or cannot be looked at
			}
			return failedResult(fmt.Errorf("read the existing object: %w", getErr))
		}
		if _, internal := Internal(err); internal {
			r.Resumed = true // the server may have failed behind the creation
		}
		return c.resolveExisting(ctx, &r, live, maybe)
	}
}

// meetExisting decides about an object without creating it.
func (c *Client) meetExisting(ctx context.Context, r *Request) Result {
	live, err := c.getObject(ctx, r.Target)
	switch {
	case apierrors.IsNotFound(err):
		return failedResult(ErrGoing)
	case err != nil:
		return failedResult(fmt.Errorf("read the existing object: %w", err))
	}
	return c.resolveExisting(ctx, r, live, false)
}

func failedResult(err error) Result { return Result{Action: Failed, Err: err} }

// createOncePropagated creates, and waits for what was created just before to be known everywhere
// in the server. A dry run waits for nothing.
func (c *Client) createOncePropagated(ctx context.Context, r *Request, body []byte) (Identity, bool, error) {
	start := c.clock.Now()
	sent := false
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		id, maybe, err := c.createObject(ctx, r.Target, body, r.Converted)
		sent = sent || maybe
		if err == nil || c.dry != nil || !notPropagated(err, r) || c.clock.Since(start) > propagation || retry.Pause(ctx, c.clock, pause) != nil {
			return id, sent, err
		}
	}
}

// lacksAccount begins the refusal of a Pod whose ServiceAccount is not there; namespace and name follow.
const lacksAccount = "error looking up service account "

// notPropagated reports that the server refuses only because something else is not there yet: the
// paths of a new kind, or the ServiceAccount that the controller makes for a new namespace.
func notPropagated(err error, r *Request) bool {
	if apierrors.IsNotFound(err) {
		return r.New && !strings.Contains(err.Error(), "namespaces ")
	}
	return apierrors.IsForbidden(err) && r.GVR.Resource == "pods" && strings.Contains(err.Error(), lacksAccount)
}
