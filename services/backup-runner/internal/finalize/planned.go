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
}

// errPlanDiffers ends a backup that must do what its plan says.
var errPlanDiffers = errors.New("the backup differs from its plan")

func newPlanComparison(s *State, id string) *planComparison {
	return &planComparison{state: s, id: id, rows: storedplan.NewWriter(s.Dir)}
}

// addStored notes an object of the backup. One that an action brought live need not be in the plan.
func (c *planComparison) addStored(key manifest.Key, live bool) error {
	group, version, kind, _ := manifest.SplitKindName(key.Kind)
	row := storedplan.Row{Group: group, Version: version, Kind: kind, Namespace: key.Namespace, Name: key.Name, Action: storedplan.ActionStore}
	if live {
		row.Unknown = []string{"an action brought it"}
	}
	return c.rows.Add(row)
}

// compareRows returns the differences as lines of the log. With holdfast.io/plan-strict any is an error, and so is a plan that
// cannot be read.
func (c *planComparison) compareRows(ctx context.Context) ([]joblog.Entry, error) {
	s := c.state
	strict := s.Backup.Annotations[holdfast.AnnotationPlanStrict] == "true"
	if err := c.rows.Sort(); err != nil {
		return nil, err
	}
	found, err := storedplan.Compare(storedplan.Rows(ctx, s.Store, c.id), c.rows.Rows())
	unread := errors.Is(err, storedplan.ErrNotFound) || errors.Is(err, storedplan.ErrCorrupt)
	switch {
	case err != nil && (strict || !unread):
		return nil, fmt.Errorf("compare with the plan: %w", err)
	case err != nil:
		s.Contents.PlanDifferences = fmt.Sprintf("unknown: %v", err)
		return []joblog.Entry{c.logEntry("Failed to compare the backup with its plan: " + err.Error())}, nil
	case found.Total() == 0:
		s.Contents.PlanDifferences = "none"
		return []joblog.Entry{c.logEntry("The backup holds what plan " + c.id + " lists")}, nil
	}
	s.Contents.PlanDifferences = fmt.Sprintf("%d objects were added since, %d are gone", found.Added, found.Gone)
	text := fmt.Sprintf("%s: %s: %s", c.id, s.Contents.PlanDifferences, strings.Join(found.First, "; "))
	if strict {
		return nil, fmt.Errorf("%w %s", errPlanDiffers, text)
	}
	return []joblog.Entry{c.logEntry("Since plan " + text)}, nil
}

// logEntry is a line of the log. Its time is the same for every holder.
func (c *planComparison) logEntry(message string) joblog.Entry {
	return joblog.Entry{Time: c.state.Backup.Status.StartTimestamp.Time, Level: joblog.Info, Source: "holdfast/backup-runner", Message: message}
}

func (c *planComparison) close() { _ = c.rows.Close() } // everything was read
