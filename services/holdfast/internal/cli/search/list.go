package search

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// List is what -o prints, in the form of a list of kubectl's.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Item   `json:"items"`
	Coverage        Coverage `json:"coverage"`
}

// Item is an object that was found, or a backup of a history.
type Item struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Found             *Found  `json:"found,omitempty"`
	Backup            *Backup `json:"backup,omitempty"`
	// Change is First, Unchanged, Changed or Unknown, compared with the next item of a history.
	Change string `json:"change,omitempty"`
}

// Found says which backups hold an object.
type Found struct {
	Backups int64  `json:"backups"`
	Oldest  Backup `json:"oldest"`
	Newest  Backup `json:"newest"`
}

// Backup is a backup that holds an object.
type Backup struct {
	Name      string      `json:"name"`
	Location  string      `json:"location"`
	Schedule  string      `json:"schedule,omitempty"`
	StartTime metav1.Time `json:"startTime"`
	// NamesOnly: only the names of its objects are known.
	NamesOnly bool `json:"namesOnly,omitempty"`
}

// Coverage says what part of all backups was looked at.
type Coverage struct {
	Indexed    int64 `json:"indexed"`
	Backups    int64 `json:"backups"`
	NamesOnly  int64 `json:"namesOnly"`
	Incomplete bool  `json:"incomplete"`
}

func newList() *List {
	return &List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []Item{}}
}

func newItem(group, version, kind, namespace, name string) Item {
	return Item{TypeMeta: metav1.TypeMeta{APIVersion: schema.GroupVersion{Group: group, Version: version}.String(), Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newBackup(b *manifestv1.BackupReference) Backup {
	return Backup{Name: b.GetBackup(), Location: b.GetLocation(), Schedule: b.GetSchedule(), StartTime: metav1.NewTime(b.GetStartTime().AsTime()), NamesOnly: b.GetNamesOnly()}
}

func (b *Backup) formatStart() string { return command.FormatTime(&b.StartTime) }

// addCoverage takes the coverage of another page.
func (l *List) addCoverage(c *manifestv1.Coverage) {
	l.Coverage = Coverage{Indexed: c.GetIndexed(), Backups: c.GetBackups(), NamesOnly: c.GetNamesOnly(), Incomplete: c.GetIncomplete() || l.Coverage.Incomplete}
}

// printList prints a list, or its rows as a table, and says what the answer does not cover. none is said where
// there are no rows, with the number of backups.
func (o *options) printList(l *List, header, wide []string, rows [][]string, none string) (err error) {
	c := &l.Coverage
	switch {
	case !o.output.IsText():
		err = o.output.Print(o.Out, l)
	case len(rows) == 0:
		o.Printf(none, c.Indexed)
	default:
		err = o.output.PrintTable(o.Out, header, wide, rows)
	}
	if c.Incomplete {
		_, _ = fmt.Fprintf(o.ErrOut, "Incomplete: %d of %d backups are indexed. The others are not read yet, or cannot be read; see the log of manifest-indexer.\n", c.Indexed, c.Backups)
	}
	if c.NamesOnly > 0 {
		_, _ = fmt.Fprintf(o.ErrOut, "%d of the indexed backups have no manifest of their own: only the names of their objects are known.\n", c.NamesOnly)
	}
	return err
}

// DeepCopyObject implements runtime.Object for printers, which change nothing.
func (l *List) DeepCopyObject() runtime.Object { return l }

// DeepCopyObject implements runtime.Object for printers, which change nothing.
func (i *Item) DeepCopyObject() runtime.Object { return i }
