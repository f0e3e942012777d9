package mark

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// maxName bounds what is kept of the requester's name, in runes.
const maxName = 256

// CancelRequest is the value of the annotation holdfast.io/cancel. The request and the mark of the
// commit are written by compare-and-swap, so that one of them is first: a runner that finds the
// request cannot commit any more, and a process that finds the commit does not ask. A request in a
// person's words, which holds no UID, counts.
type CancelRequest struct {
	// By is the requester; empty if unknown.
	By string `json:"by,omitempty"`
	// Time is the time of the request; zero when it is not known.
	Time time.Time `json:"time,omitzero"`
	// UID is the UID of the object to stop; empty when a person wrote the annotation. WriteCancelRequest sets it.
	UID types.UID `json:"uid,omitempty"`
}

// Reason is the failureReason of a job that ends by the request.
func (r CancelRequest) Reason() string {
	if r.By == "" {
		return reason
	}
	return reason + by + r.By
}

// ReasonBut is Reason with what did not work while the job was ended.
func (r CancelRequest) ReasonBut(what string) string { return r.Reason() + but + plainName(what) }

const (
	reason = "cancelled"
	by     = " by "
	but    = "; "
)

// IsCancelReason reports whether a failureReason is that of a cancelled job.
func IsCancelReason(text string) bool {
	return text == reason || strings.HasPrefix(text, reason+by) || strings.HasPrefix(text, reason+but)
}

// CancelError ends the work of a job with a request to stop. Its text is the reason.
type CancelError struct{ Request CancelRequest }

// Error implements error.
func (e *CancelError) Error() string { return e.Request.Reason() }

// CancelRequested returns the request to stop a job; false when there is none, or when it came after the
// job began to commit. Any text is valid: "true" is a request without a name, "false" is none,
// others are the requester's name.
func CancelRequested(obj metav1.Object) (CancelRequest, bool) {
	r, ok := ownRequest(obj)
	return r, ok && !IsCommitting(obj)
}

// ownRequest is the request on the object, unless it was copied from another.
func ownRequest(obj metav1.Object) (CancelRequest, bool) {
	r, ok := parseRequest(obj.GetAnnotations()[holdfast.AnnotationCancel])
	return r, ok && (r.UID == "" || r.UID == obj.GetUID())
}

func parseRequest(text string) (CancelRequest, bool) {
	var r CancelRequest
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "false":
		return r, false
	case "true":
		return r, true
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		r = CancelRequest{By: text}
	}
	r.By = plainName(r.By)
	return r, true
}

// plainName makes a name fit for one line of a status.
func plainName(name string) string {
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, name))
	if runes := []rune(name); len(runes) > maxName {
		name = string(runes[:maxName])
	}
	return name
}

// WriteCancelRequest writes the request into the object's annotations, unless there is one.
func WriteCancelRequest(obj metav1.Object, r CancelRequest) error {
	if _, asked := ownRequest(obj); asked {
		return nil
	}
	r.By, r.UID = plainName(r.By), obj.GetUID()
	return setMark(obj, holdfast.AnnotationCancel, r)
}

// IsCommitting reports whether the job began to commit what it did. The mark of another object does
// not count.
func IsCommitting(obj metav1.Object) bool {
	_, uid, ok := strings.Cut(obj.GetAnnotations()[holdfast.AnnotationCommitting], " ")
	return ok && uid == string(obj.GetUID())
}

// SetCommitting notes that the holder of epoch commits the job. A *CancelError when the job was asked to stop
// before. The mark of an earlier epoch stays: what it began is gone on with.
func SetCommitting(obj metav1.Object, epoch int64) error {
	if r, ok := CancelRequested(obj); ok {
		return &CancelError{r}
	}
	if !IsCommitting(obj) {
		setAnnotation(obj, holdfast.AnnotationCommitting, strconv.FormatInt(epoch, 10)+" "+string(obj.GetUID()))
	}
	return nil
}

// ClearCommitting removes the mark, for an object with a terminal phase.
func ClearCommitting(obj metav1.Object) { clearMark(obj, holdfast.AnnotationCommitting) }
