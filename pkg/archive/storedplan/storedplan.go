// Package storedplan reads and writes what a dry run found: the plan of a restore or a backup, as it
// is stored in metadata/holdfast/plans/<id> of a location.
//
// A plan is a header and rows, one for each object, sorted by their keys. Rows are written and read
// as a stream: a plan of a million objects takes no more memory than one of ten.
package storedplan

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// FormatVersion is the version of the format that this package writes.
const FormatVersion = "1"

// Errors of reading; all wrap one of these or are errors of the store.
var (
	// ErrNotFound means that there is no such plan, or no longer.
	ErrNotFound = errors.New("no such plan")
	// ErrCorrupt means that a plan cannot be read as one.
	ErrCorrupt = errors.New("damaged plan")
)

// Kinds of jobs that plans are made for.
const (
	KindRestore = "Restore"
	KindBackup  = "Backup"
)

// ActionStore is the action of every row of the plan of a backup: the object would be stored.
const ActionStore = "store"

// Header says what a plan was made for and what it amounts to.
type Header struct {
	FormatVersion string `json:"formatVersion"`
	ID            string `json:"id"`
	// Kind is KindRestore or KindBackup.
	Kind string `json:"kind"`
	// Backup names the backup that a restore reads, or that a backup is to become; it may be empty.
	Backup string `json:"backup,omitempty"`
	// Created and Expires are in UTC. A plan is removed some time after it expired.
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Spec is the spec of the Restore or Backup, Annotations those of its annotations that change what
	// it does.
	Spec        json.RawMessage   `json:"spec"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// ServerDryRun reports that creations were sent with dryRun=All.
	ServerDryRun bool `json:"serverDryRun,omitempty"`
	// Counts are the numbers of rows by action.
	Counts map[string]int64 `json:"counts,omitempty"`
	// LeftOut are the numbers of objects that the filters leave out, by kind ("apps/v1/Deployment").
	LeftOut map[string]int64 `json:"leftOut,omitempty"`
	// Messages are about the job as a whole.
	Messages []string `json:"messages,omitempty"`
}

// Row is what would happen to one object.
type Row struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// TargetNamespace is the namespace that a restore puts the object into, if it is another one.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// Action is one word, such as create; the service that plans defines which there are.
	Action string `json:"action"`
	// Reasons are sentences for people.
	Reasons []string `json:"reasons,omitempty"`
	// Fields are paths of what would change, without values: "spec.replicas".
	Fields []string `json:"fields,omitempty"`
	// Order is the place in the order of work; equal places have no order. 0 means unknown.
	Order int64 `json:"order,omitempty"`
	// Unknown are the effects that a dry run cannot tell, such as those of an action of a plugin.
	Unknown []string `json:"unknown,omitempty"`
}

// Key returns what rows are sorted by: group, kind, namespace and name, without the version. Two rows
// of a plan never have one key.
func (r *Row) Key() string { return r.Group + "\x00" + r.Kind + "\x00" + r.Namespace + "\x00" + r.Name }

// NewID returns a new id: the time and random letters.
func NewID(now time.Time) string {
	return now.UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// Bounds of what is written, and of what is accepted when reading.
const (
	maxTexts     = 64   // reasons, fields and unknown effects of a row, each
	maxText      = 1024 // bytes of one of them
	maxLine      = 1 << 20
	maxHeader    = 4 << 20
	maxDecoded   = 8 << 20
	decodedRatio = 8
)

// boundTexts cuts what a row may not hold, and says so.
func boundTexts(texts []string) []string {
	if len(texts) > maxTexts {
		texts = append(texts[:maxTexts-1:maxTexts-1], "and more")
	}
	for i, t := range texts {
		if len(t) > maxText {
			texts = append([]string(nil), texts...)
			texts[i] = strings.ToValidUTF8(t[:maxText-3], "") + "…"
		}
	}
	return texts
}
