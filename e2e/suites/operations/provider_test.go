package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// provider is what the plugins of both protocols do.
type provider struct {
	plugin string
	works  client.Client
	calls  callNotes
}

// newProvider reaches the cluster and the test as a plugin does.
func newProvider(plugin string) (*provider, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	c, err := newWorks(config)
	if err != nil {
		return nil, err
	}
	return &provider{plugin: plugin, works: c, calls: callNotes(filepath.Join(filepath.Dir(filepath.Dir(os.Args[0])), "calls"))}, nil
}

// startOperation begins the operation that an object orders in an annotation, and returns nil for one
// without it.
func (p *provider) startOperation(ctx context.Context, item *unstructured.Unstructured, annotation, backup, key string) (*workObject, error) {
	text, ok := item.GetAnnotations()[annotation]
	if !ok {
		return nil, nil
	}
	w := &workObject{Spec: workSpec{Backup: backup, Item: item.GetName(), Key: key}}
	if err := json.Unmarshal([]byte(text), &w.Spec.Order); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotation, err)
	}
	if err := p.calls.noteCall(notedCall{what: "start", backup: backup, item: item.GetName(), key: key}); err != nil {
		return nil, err
	}
	w.Namespace, w.GenerateName = item.GetNamespace(), item.GetName()+"-"
	if key != "" { // a holder that repeats the call arrives at the same work
		w.Name = w.GenerateName + key[:8]
	}
	if err := p.works.Create(ctx, w); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if w.Spec.Order.Start == blocks {
		return w, p.checkBlocked(ctx, backup)
	}
	return w, nil
}

func (p *provider) checkBlocked(ctx context.Context, backup string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !p.calls.isReleased(backup) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// errUnknown is the answer about an operation that is not known.
var errUnknown = errors.New("there is no such work")

func (p *provider) getWork(ctx context.Context, id string) (*workObject, error) {
	namespace, name, _ := strings.Cut(id, "/")
	w := &workObject{}
	err := p.works.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, w)
	if apierrors.IsNotFound(err) {
		return nil, errUnknown
	}
	return w, err
}

// readProgress reads an operation.
func (p *provider) readProgress(ctx context.Context, id string) (*workObject, error) {
	w, err := p.getWork(ctx, id)
	if err != nil {
		return nil, err
	}
	return w, p.calls.notePolled(p.plugin, w.Spec.Backup)
}

// cancelOperation requests an operation to end.
func (p *provider) cancelOperation(ctx context.Context, id string) (accepted bool, err error) {
	w, err := p.getWork(ctx, id)
	if err != nil {
		return false, err
	}
	if err := p.calls.noteCall(notedCall{what: "cancel", backup: w.Spec.Backup, item: w.Spec.Item}); err != nil {
		return false, err
	}
	if w.Spec.Order.Cancel == refuses {
		return false, nil
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancelled":true}}`))
	return true, p.works.Patch(ctx, w, patch)
}
