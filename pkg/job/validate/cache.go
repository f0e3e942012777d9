package validate

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// answerLifetime is how long an answer of the API server is reused for the same read.
const answerLifetime = time.Second

// answerCache holds what the API server answered a moment ago: hundreds of backups that arrive together
// need the same. Errors are not kept. The zero value is empty.
type answerCache struct {
	mu      sync.Mutex
	answers map[string]cachedAnswer
}

type cachedAnswer struct {
	asked time.Time
	value any
}

// Forget makes the validator ask anew. Who validates what it has just read from the API server
// calls it in between: what it read may have been written by a client that changed a location
// before.
func (v *Validator) Forget() {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	clear(v.memory.answers)
}

// cachedValue returns the value from the cache, or calls for it.
func cachedValue[T any](v *Validator, question string, ask func() (T, error)) (T, error) {
	m := &v.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := v.Clock.Now()
	if a, known := m.answers[question]; known && now.Sub(a.asked).Abs() < answerLifetime {
		return a.value.(T), nil //nolint:forcetypeassert // each question has one type
	}
	value, err := ask()
	if err != nil {
		return value, err
	}
	if m.answers == nil {
		m.answers = map[string]cachedAnswer{}
	}
	m.answers[question] = cachedAnswer{asked: now, value: value}
	return value, nil
}

// readLocation reads a location, which must not be changed.
func (v *Validator) readLocation(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	return cachedValue(v, "location "+name, func() (*velerov1.BackupStorageLocation, error) { return v.Locations.Get(ctx, name) })
}

// main reads the default location, which must not be changed.
func (v *Validator) main(ctx context.Context) (*velerov1.BackupStorageLocation, error) {
	return cachedValue(v, "default location", func() (*velerov1.BackupStorageLocation, error) { return v.Locations.Default(ctx) })
}

// namespaceNames are the names of the namespaces, and those of them that no backup takes.
type namespaceNames struct{ live, excluded []string }

// listNamespaces lists all namespaces once, labelled or not: an API server that answers consistent
// lists from its cache may wait up to 100 ms for each.
func (v *Validator) listNamespaces(ctx context.Context) (namespaceNames, error) {
	return cachedValue(v, "namespaces", func() (namespaceNames, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(namespaceListKind)
		if err := v.Reader.List(ctx, list); err != nil {
			return namespaceNames{}, fmt.Errorf("list namespaces: %w", err)
		}
		all := namespaceNames{live: make([]string, len(list.Items))}
		for i := range list.Items {
			all.live[i] = list.Items[i].Name
			if list.Items[i].Labels[velerov1.LabelExcludeFromBackup] == "true" {
				all.excluded = append(all.excluded, list.Items[i].Name)
			}
		}
		return all, nil
	})
}
