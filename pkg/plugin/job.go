package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Job is the Backup or Restore that an action runs for. It is shared between calls and cannot be
// changed.
type Job struct {
	raw  []byte
	meta metav1.PartialObjectMetadata
}

// NewJob makes a Job of a Backup's or Restore's JSON. raw must not be changed afterwards.
func NewJob(raw []byte) (*Job, error) {
	j := &Job{raw: raw}
	if err := json.Unmarshal(raw, &j.meta); err != nil {
		return nil, fmt.Errorf("no Backup or Restore: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return nil, errors.New("no Backup or Restore: want a JSON object")
	}
	return j, nil
}

// Name returns its name.
func (j *Job) Name() string { return j.meta.Name }

// Namespace returns the server's namespace, where plugins find their ConfigMaps.
func (j *Job) Namespace() string { return j.meta.Namespace }

// UID returns its UID, which differs from that of an earlier one of the same name.
func (j *Job) UID() string { return string(j.meta.UID) }

// Label returns the value of a label, and whether there is one.
func (j *Job) Label(key string) (string, bool) {
	value, ok := j.meta.Labels[key]
	return value, ok
}

// Annotation returns the value of an annotation, and whether there is one.
func (j *Job) Annotation(key string) (string, bool) {
	value, ok := j.meta.Annotations[key]
	return value, ok
}

// Decode reads the whole object into a type of yours, for example Velero's Backup or a struct with
// the fields you need.
func (j *Job) Decode(into any) error {
	if err := json.Unmarshal(j.raw, into); err != nil {
		return fmt.Errorf("decode %s: %w", j.meta.Name, err)
	}
	return nil
}

// JSON returns the whole object, which must not be changed.
func (j *Job) JSON() []byte { return j.raw }
