package expiry

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotation holds a Tries as JSON.
const Annotation = "holdfast.io/deletion-tries"

// PerRequest is how often one request tries what may succeed later before it ends with what failed.
const PerRequest = 5

const (
	firstPause = 15 * time.Second
	maxPause   = time.Hour
)

// Tries is what became of a DeleteBackupRequest so far. It is kept on the object, so that a pause holds
// neither a claim nor a worker and outlives the process. The zero value is that of a new request.
type Tries struct {
	// Failed is how many tries have failed. The next request for the same expired backup counts on.
	Failed int `json:"failed"`
	// After is when the next try is due.
	After time.Time `json:"after"`
}

// ReadTries reads the annotation. What cannot be read counts as nothing: a try too early does no harm.
func ReadTries(obj metav1.Object) (t Tries) {
	if err := json.Unmarshal([]byte(obj.GetAnnotations()[Annotation]), &t); err != nil || t.Failed < 0 {
		return Tries{}
	}
	return t
}

// Fail returns t after one more failure: pauses double from 15 s to an hour.
func (t Tries) Fail(now time.Time) Tries {
	pause := maxPause
	if t.Failed < 8 {
		pause = min(firstPause<<max(t.Failed, 0), maxPause)
	}
	return Tries{Failed: t.Failed + 1, After: now.Add(pause).UTC()}
}

// Wait returns t with another time of the next try.
func (t Tries) Wait(until time.Time) Tries { return Tries{Failed: t.Failed, After: until.UTC()} }

// Set writes the annotation.
func (t Tries) Set(obj metav1.Object) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode %s: %w", Annotation, err)
	}
	all := map[string]string{Annotation: string(data)}
	for k, v := range obj.GetAnnotations() {
		if k != Annotation {
			all[k] = v
		}
	}
	obj.SetAnnotations(all)
	return nil
}
