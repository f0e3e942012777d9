package fault

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
)

// Case is one fault: the process that reaches the nth hit of a point while the scenario runs.
type Case struct {
	Point    string // for example "backup-runner/part-recorded"
	Nth      int    // 0 and 1 are the first hit
	Scenario string // see Scenarios
	// After is a point that has to be reached first, for points that only a successor or a leaver
	// reaches: the process that reaches it is killed, or, if Asked, stopped (SIGTERM) right there.
	After string
	Asked bool
	// Always has every run of `make test` cover the case: one for each service and kind of effect. `make test-all` covers all.
	Always bool
	// Changes are facts that differ from those of the undisturbed run by right, by name, as regular
	// expressions for what they are instead; an empty one is for a fact that is not there.
	Changes Facts
}

// String names the case, as a test.
func (c Case) String() string {
	name := c.Point
	if c.Nth > 1 {
		name += fmt.Sprintf("@%d", c.Nth)
	}
	return name + "/" + c.Scenario
}

// Service is the service whose process reaches the point.
func (c Case) Service() string {
	service, _, _ := strings.Cut(c.Point, "/")
	return service
}

// errUnreachable means that a point was not hit: what it should test is not tested.
var errUnreachable = errors.New("the point was never hit")

// Baseline returns what a scenario gives when nothing happens. The first call runs it.
func (b *Bed) Baseline(ctx context.Context, scenario string) (Facts, error) {
	if facts, ok := b.undisturbed[scenario]; ok {
		return facts, nil
	}
	facts, err := b.Run(ctx, scenario)
	if err != nil {
		return nil, fmt.Errorf("undisturbed %s: %w", scenario, err)
	}
	b.undisturbed[scenario] = facts
	return facts, nil
}

// Repeat checks that a scenario gives the same twice: a difference after a fault is the fault's
// then.
func (b *Bed) Repeat(ctx context.Context, scenario string) error {
	base, err := b.Baseline(ctx, scenario)
	if err != nil {
		return err
	}
	again, err := b.Run(ctx, scenario)
	if err != nil {
		return err
	}
	return base.Compare(again)
}

// Run runs a scenario without a fault.
func (b *Bed) Run(ctx context.Context, scenario string) (Facts, error) {
	s, name, err := b.nextScenario(ctx, scenario)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx, b, name); err != nil {
		return nil, err
	}
	facts, err := s.observe(ctx, b, name)
	return facts, errors.Join(err, s.tidy(ctx, b, name))
}

// nextScenario prepares a scenario under a fresh name.
func (b *Bed) nextScenario(ctx context.Context, scenario string) (*Scenario, string, error) {
	s, ok := Scenarios[scenario]
	if !ok {
		return nil, "", fmt.Errorf("no scenario is called %q", scenario)
	}
	b.jobs++
	name := fmt.Sprintf("%s-%03d", scenario, b.jobs)
	return s, name, s.prepare(ctx, b, name)
}

// Kill runs a scenario, kills the process that reaches the point, and returns nil when the others
// bring the job to the same end and leave nothing behind, and when the process that takes the dead
// one's place finds nothing of it either.
func (b *Bed) Kill(ctx context.Context, c Case) error {
	base, err := b.Baseline(ctx, c.Scenario)
	if err != nil {
		return err
	}
	began := time.Now()
	j, err := b.strikeCase(ctx, c, Kill)
	if err != nil {
		return err
	}
	<-j.hit.Done()
	struck := time.Since(began)
	facts, err := j.observeJob(ctx)
	if err == nil {
		err = base.Changed(c.Changes).Compare(facts.Matched(c.Changes))
	}
	if err != nil {
		err = fmt.Errorf("%s, killed %s: %w%s", j.name, j.hit.LogPath(), err, b.logTails(c.Service()))
	}
	ended := time.Since(began)
	err = errors.Join(err, b.points.clearPoints(), j.tidyJob(ctx), b.replaceMember(ctx, j.hit))
	_, _ = fmt.Fprintf(b.log, "%s: hit after %.1f s, ended after %.1f s, all in %.1f s\n", c, struck.Seconds(), ended.Seconds(), time.Since(began).Seconds())
	return err
}

// faultJob is a scenario under way in which a point was hit.
type faultJob struct {
	*Scenario
	bed  *Bed
	name string
	hit  *fleet.Member
}

func (j *faultJob) observeJob(ctx context.Context) (Facts, error) {
	return j.Scenario.observe(ctx, j.bed, j.name)
}
func (j *faultJob) tidyJob(ctx context.Context) error { return j.Scenario.tidy(ctx, j.bed, j.name) }

// strikeCase prepares a scenario, arms the point, begins, and returns when the point was hit.
func (b *Bed) strikeCase(ctx context.Context, c Case, order string) (_ *faultJob, err error) {
	j := &faultJob{bed: b}
	b.former = slices.Clone(b.fleet.Members)
	if j.Scenario, j.name, err = b.nextScenario(ctx, c.Scenario); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w%s", j.name, err, b.logTails(c.Service())), b.points.clearPoints(), j.tidyJob(ctx))
		}
	}()
	if err := b.points.armPoint(c.Point, order, c.Nth); err != nil {
		return nil, err
	}
	if c.After != "" {
		if err := b.points.armPoint(c.After, map[bool]string{false: Kill, true: Stop}[c.Asked], 1); err != nil {
			return nil, err
		}
	}
	if err := j.begin(ctx, b, j.name); err != nil {
		return nil, err
	}
	if c.After != "" {
		if err := b.awaitFirst(ctx, c); err != nil {
			return nil, err
		}
	}
	j.hit, err = b.awaitReached(ctx, c.Point)
	return j, err
}

// awaitFirst waits for the point that comes first and does what the case requires.
func (b *Bed) awaitFirst(ctx context.Context, c Case) error {
	m, err := b.awaitReached(ctx, c.After)
	if err != nil {
		return err
	}
	if c.Asked {
		// It finds the signal when it continues.
		return errors.Join(m.Signal(syscall.SIGTERM), m.Signal(syscall.SIGCONT))
	}
	<-m.Done()
	_, err = b.fleet.Revive(ctx)
	return err
}

// awaitReached returns the member that hit a point.
func (b *Bed) awaitReached(ctx context.Context, point string) (*fleet.Member, error) {
	pid := 0
	err := pollUntil(ctx, patience, point, func() (_ bool, err error) {
		pid, err = b.points.readHitProcess(point)
		return pid != 0, err
	})
	if err != nil {
		return nil, errors.Join(errUnreachable, err)
	}
	return b.memberWithPID(pid)
}

// awaitPoint does something and waits until a process has come to a point. Where the case has an order
// for the point, that is carried out.
func (b *Bed) awaitPoint(ctx context.Context, point string, do func() error) error {
	armed, err := b.points.isArmed(point)
	if err != nil {
		return err
	}
	if !armed {
		if err := b.points.armPoint(point, "delay 1ns", 1); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	err = pollUntil(ctx, patience, point, func() (bool, error) {
		pid, err := b.points.readHitProcess(point)
		return pid != 0, err
	})
	if err == nil && !armed {
		err = b.points.forgetPoint(point)
	}
	return err
}

// replaceMember starts a process in the dead one's place and waits until nothing of the dead one is left
// in the work directory.
func (b *Bed) replaceMember(ctx context.Context, dead *fleet.Member) error {
	before, err := product.Files(dead.WorkDir)
	if err != nil {
		return err
	}
	if _, err := b.fleet.Revive(ctx); err != nil {
		return err
	}
	var left []string
	err = pollUntil(ctx, patience, "the work directory is clean", func() (_ bool, err error) {
		left, err = product.Files(dead.WorkDir)
		left = slices.DeleteFunc(left, func(name string) bool { // of the living process
			return filepath.Base(name) == ".holdfast-work" || !slices.Contains(before, name)
		})
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%w: %v", err, left)
	}
	return nil
}
