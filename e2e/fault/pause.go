package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stopped matches the line by which a woken process logs that it goes no further.
var stopped = regexp.MustCompile(`job stopped|claim lost|closed by another holder`)

// concluded matches the line by which a process logs that it came to the end of a job, and that
// another had written that if it had.
var concluded = regexp.MustCompile(`.*(Backup finished|Restore ended|has ended already).*`)

// Pause runs a scenario, stops the process that reaches the point until another has brought the job
// to its end, and lets it go on. It returns nil when the end is that of the undisturbed run, when
// the woken process changes neither the bucket nor the cluster, says that it stopped its job, stays
// ready, and takes a later job.
func (b *Bed) Pause(ctx context.Context, c Case) (err error) {
	base, err := b.Baseline(ctx, c.Scenario)
	if err != nil {
		return err
	}
	began := time.Now()
	j, err := b.strikeCase(ctx, c, Stop)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, stopped %s: %w%s", j.name, j.hit.LogPath(), err, b.logTails(c.Service()))
		}
		err = errors.Join(err, j.hit.Signal(syscall.SIGCONT), b.points.clearPoints(), j.tidyJob(ctx))
	}()
	facts, err := j.observeJob(ctx)
	if err != nil {
		return err
	}
	if err := base.Compare(facts); err != nil {
		return err
	}
	before, err := b.writeMarks(ctx, j)
	if err != nil {
		return err
	}
	log := &logTail{path: j.hit.LogPath()}
	if err := log.skipWritten(); err != nil {
		return err
	}
	if err := errors.Join(b.points.clearPoints(), j.hit.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	if err := b.checkHarmless(ctx, j, before, log); err != nil {
		return err
	}
	err = b.awaitWorking(ctx, c, log)
	_, _ = fmt.Fprintf(b.log, "%s: paused, all in %.1f s\n", c, time.Since(began).Seconds())
	return err
}

// checkHarmless waits until the woken process has stopped its job and checks that it changed nothing.
// What it may leave of its own is swept.
func (b *Bed) checkHarmless(ctx context.Context, j *faultJob, before Facts, log *logTail) error {
	if err := log.awaitStopped(ctx, "the woken process stops its job"); err != nil {
		after, failure := b.writeMarks(ctx, j)
		return errors.Join(err, failure, before.Compare(after))
	}
	if err := pollUntil(ctx, patience, "the woken process is ready", func() (bool, error) { return b.fleet.Ready(ctx, j.hit), nil }); err != nil {
		return err
	}
	var last error
	err := pollUntil(ctx, patience, "nothing is changed after the wake", func() (bool, error) {
		after, err := b.writeMarks(ctx, j)
		if err != nil {
			return false, err
		}
		last = before.Compare(after)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// awaitWorking runs small jobs until the woken process takes one.
func (b *Bed) awaitWorking(ctx context.Context, c Case, log *logTail) error {
	const most = 20
	for range most {
		s, name, err := b.nextScenario(ctx, "later-"+c.Service())
		if err != nil {
			return err
		}
		if err := s.begin(ctx, b, name); err != nil {
			return err
		}
		if _, err := s.observe(ctx, b, name); err != nil {
			return err
		}
		if err := s.tidy(ctx, b, name); err != nil {
			return err
		}
		text, err := log.readText()
		if err != nil || strings.Contains(text, name) {
			return err
		}
	}
	return fmt.Errorf("%w: the woken process took none of %d later jobs", ErrDiffers, most)
}

// writeMarks are facts about whether a published object of the bucket or an object of the cluster was
// written again.
func (b *Bed) writeMarks(ctx context.Context, j *faultJob) (Facts, error) {
	f := Facts{}
	for _, dir := range []string{"backups", "restores"} {
		root := filepath.Join(b.bucket.path, dir, j.name)
		keys, err := b.bucket.listKeys(filepath.Join(dir, j.name))
		if err != nil {
			return nil, err
		}
		for key := range keys {
			info, err := os.Stat(filepath.Join(root, key))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			f[dir+"/"+key] = fmt.Sprintf("%d bytes of %s, file %d", info.Size(), info.ModTime().Format(time.RFC3339Nano), info.Sys().(*syscall.Stat_t).Ino)
		}
	}
	for _, kind := range untouched {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := b.client.List(ctx, list, client.InNamespace(j.name)); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			f[fmt.Sprintf("%s %s", kind.Kind, o.Name)] = fmt.Sprintf("%s at %s", o.UID, o.ResourceVersion)
		}
	}
	return f, nil
}

// untouched are kinds whose objects no controller writes to.
var untouched = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMapList"}, {Version: "v1", Kind: "SecretList"}, {Version: "v1", Kind: "ServiceAccountList"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleList"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBindingList"},
}

// wakePatience is how long a woken process may take to find out what it missed.
const wakePatience = 60 * time.Second

// logTail reads what a member writes from a moment on.
type logTail struct {
	path string
	from int64
}

func (l *logTail) skipWritten() error {
	info, err := os.Stat(l.path)
	if err == nil {
		l.from = info.Size()
	}
	return err
}

func (l *logTail) readText() (string, error) {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return "", err
	}
	return string(data[min(l.from, int64(len(data))):]), nil
}

// awaitStopped waits until the log says that the job was stopped; that it was brought to its end is wrong.
func (l *logTail) awaitStopped(ctx context.Context, what string) error {
	return pollUntil(ctx, wakePatience, what, func() (bool, error) {
		text, err := l.readText()
		if line := concluded.FindString(text); line != "" {
			err = fmt.Errorf("%w: the woken process went on to the end: %s", ErrDiffers, line)
		}
		return stopped.MatchString(text), err
	})
}
