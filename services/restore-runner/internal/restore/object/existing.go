package object

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// LiveReader reads objects of the cluster. Safe for concurrent use.
type LiveReader struct {
	Client *apply.Client
	// Manager is the field manager of the restore.
	Manager apply.Manager
}

// Get returns an object, nil when it is not there.
func (r *LiveReader) Get(ctx context.Context, t apply.Target) (live map[string]any, err error) {
	raw, err := r.Client.Get(ctx, t)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the object: %w", err)
	}
	if live, err = jsonlimit.UnmarshalObject(raw); err != nil {
		return nil, fmt.Errorf("decode the existing object: %w", err)
	}
	return live, nil
}

// Owned reports whether an object exists, and whether this restore created it.
func (r *LiveReader) Owned(ctx context.Context, t apply.Target) (there, mine bool, err error) {
	live, err := r.Get(ctx, t)
	if live == nil || err != nil {
		return false, false, err
	}
	return true, r.Manager.IsCreatedByRestore(MapAt(live, "metadata")), nil
}

// Before reports that an object was in the cluster before the restore, and is not being deleted.
func (r *LiveReader) Before(ctx context.Context, t apply.Target) bool {
	raw, err := r.Client.Get(ctx, t)
	if err != nil {
		return false
	}
	live, err := DecodeLive(raw)
	return err == nil && live.Metadata.DeletionTimestamp == nil && !live.MadeBy(r.Manager)
}

// LiveObject is what decides about an existing object.
type LiveObject struct {
	Metadata struct {
		UID               types.UID `json:"uid"`
		DeletionTimestamp *string   `json:"deletionTimestamp"`
		ManagedFields     []struct {
			Manager apply.Manager `json:"manager"`
		} `json:"managedFields"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// DecodeLive reads an object as the API server answered.
func DecodeLive(raw []byte) (*LiveObject, error) {
	var o LiveObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("decode the existing object: %w", err)
	}
	return &o, nil
}

// MadeBy reports whether the restore with this field manager created the object.
func (o *LiveObject) MadeBy(m apply.Manager) bool {
	for _, entry := range o.Metadata.ManagedFields {
		if m != "" && entry.Manager == m {
			return true
		}
	}
	return false
}

// True reports whether the object has these conditions, each with status True.
func (o *LiveObject) True(conditions ...string) bool {
	met := map[string]bool{}
	for _, c := range o.Status.Conditions {
		met[c.Type] = c.Status == "True"
	}
	for _, c := range conditions {
		if !met[c] {
			return false
		}
	}
	return true
}
