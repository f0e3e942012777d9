package finalize

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// planComparison compares what a backup holds with the plan that it executes.
type planComparison struct {
	state *State
	id    string
	rows  *storedplan.Writer // what the backup holds
	added objectNames
	gone  objectNames
}

// objectNames counts objects and has the first names.
type objectNames struct {
	count int
	first []string
}

// firstNames is how many names a comparison lists.
const firstNames = 10

func (n *objectNames) addRow(r *storedplan.Row) {
	n.count++
	if len(n.first) < firstNames {
		n.first = append(n.first, manifest.Key{Kind: manifest.KindName(r.Group, r.Version, r.Kind), Namespace: r.Namespace, Name: r.Name}.String())
	}
}

func (n *objectNames) joinNames() string {
	text := strings.Join(n.first, ", ")
	if n.count > len(n.first) {
		text += ", …"
	}
	return text
}

// errPlanDiffers ends a backup that must do what its plan says.
var errPlanDiffers = errors.New("the backup differs from its plan")

func newPlanComparison(s *State, id string) *planComparison {
	return &planComparison{state: s, id: id, rows: storedplan.NewWriter(s.Dir)}
}

// addStored notes an object of the backup. Objects that actions brought live are unknown to every plan.
func (c *planComparison) addStored(key manifest.Key, live bool) error {
	if live {
		return nil
	}
	group, version, kind, _ := manifest.SplitKindName(key.Kind)
	return c.rows.Add(storedplan.Row{Group: group, Version: version, Kind: kind, Namespace: key.Namespace, Name: key.Name, Action: storedplan.ActionStore})
}

// compareRows returns the differences as lines of the log. With holdfast.io/plan-strict any is an error, and so is a plan that
// cannot be read.
func (c *planComparison) compareRows(ctx context.Context) ([]joblog.Entry, error) {
	s := c.state
	strict := s.Backup.Annotations[holdfast.AnnotationPlanStrict] == "true"
	if err := c.rows.Sort(); err != nil {
		return nil, err
	}
	err := storedplan.Compare(storedplan.Rows(ctx, s.Store, c.id), c.rows.Rows(), func(planned, stored *storedplan.Row) error {
		switch {
		case planned == nil:
			c.added.addRow(stored)
		case stored == nil:
			c.gone.addRow(planned)
		}
		return nil
	})
	unread := errors.Is(err, storedplan.ErrNotFound) || errors.Is(err, storedplan.ErrCorrupt)
	switch {
	case err != nil && (strict || !unread):
		return nil, fmt.Errorf("compare with the plan: %w", err)
	case err != nil:
		s.Contents.PlanDifferences = fmt.Sprintf("unknown: %v", err)
		return []joblog.Entry{c.logEntry("Failed to compare the backup with its plan: " + err.Error())}, nil
	case c.added.count+c.gone.count == 0:
		s.Contents.PlanDifferences = "none"
		return []joblog.Entry{c.logEntry("The backup holds what plan " + c.id + " lists")}, nil
	}
	s.Contents.PlanDifferences = fmt.Sprintf("%d objects were added since, %d are gone", c.added.count, c.gone.count)
	if strict {
		return nil, fmt.Errorf("%w %s: %s (added: %s; gone: %s)", errPlanDiffers, c.id, s.Contents.PlanDifferences, c.added.joinNames(), c.gone.joinNames())
	}
	return []joblog.Entry{
		c.logEntry(fmt.Sprintf("Since plan %s: %d objects were added: %s", c.id, c.added.count, c.added.joinNames())),
		c.logEntry(fmt.Sprintf("Since plan %s: %d objects are gone: %s", c.id, c.gone.count, c.gone.joinNames())),
	}, nil
}

// logEntry is a line of the log. Its time is the same for every holder.
func (c *planComparison) logEntry(message string) joblog.Entry {
	return joblog.Entry{Time: c.state.Backup.Status.StartTimestamp.Time, Level: joblog.Info, Source: "holdfast/backup-runner", Message: message}
}

func (c *planComparison) close() { _ = c.rows.Close() } // everything was read
