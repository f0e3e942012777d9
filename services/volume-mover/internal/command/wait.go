package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// waitInterval is how often done files are looked for.
const waitInterval = time.Second

// newWaitCommand returns `wait`, which the init container of a restored Pod runs.
func (m *mover) newWaitCommand() *cobra.Command {
	w := waiter{}
	c := &cobra.Command{
		Use: "wait RESTORE-UID", Short: "Wait until the data of restored volumes is there", Args: cobra.ExactArgs(1),
		Long: "Wait until each directory below --dir holds .velero/RESTORE-UID, and remove these .velero directories, those of --shared volumes as the last Pod. Exit code 1 if one cannot be read.",
		RunE: func(c *cobra.Command, args []string) error {
			w.name = args[0]
			if len(validation.IsDNS1123Subdomain(w.name)) > 0 {
				return errgrpc.Field("RESTORE-UID", "%q is not a UID", w.name)
			}
			if w.hasRunBefore() {
				return nil
			}
			if err := m.awaitVolumes(c.Context(), w); err != nil {
				_, _ = fmt.Fprintln(m.stderr, "error:", err)
				m.exit = ExitFailed
			}
			return nil
		},
	}
	c.Flags().StringVar(&w.dir, "dir", "/restores", "directory whose directories are the volumes")
	c.Flags().StringToIntVar(&w.shared, "shared", nil, "VOLUME=PODS: how many Pods wait for a volume, whose .velero the last one removes; may be repeated")
	c.Flags().StringVar(&w.pod, "pod", "", "name of this Pod among those that wait for a volume")
	c.Flags().StringVar(&w.state, "state", "", "directory that outlives the container, in which it is kept that the data is there")
	return c
}

// waiter waits for a done file in each volume.
type waiter struct {
	name, dir, state, pod string
	shared                map[string]int
}

// hasRunBefore reports that the container ran before in this Pod, and found the data. A Pod whose sandbox is made
// anew runs its init containers again, and the done files are gone.
func (w waiter) hasRunBefore() bool {
	if w.state == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(w.state, w.name))
	return err == nil
}

// recordFound keeps that the data was found.
func (m *mover) recordFound(w waiter) {
	if w.state == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(w.state, w.name), nil, doneFileMode); err != nil {
		_, _ = fmt.Fprintln(m.stderr, "a second run of this container would wait again:", err)
	}
}

func (m *mover) awaitVolumes(ctx context.Context, w waiter) error {
	volumes, err := w.listVolumes()
	if err != nil {
		return err
	}
	ticker := m.clock.NewTicker(waitInterval)
	defer ticker.Stop()
	for missing := volumes; ; {
		missing, err = w.findMissing(missing)
		switch {
		case err != nil:
			return err
		case len(missing) == 0:
			m.recordFound(w)
			m.removeMarks(w, volumes)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("data of %q is not there: %w", missing, context.Cause(ctx))
		case <-ticker.C():
		}
	}
}

// listVolumes returns the names of the volumes.
func (w waiter) listVolumes() (names []string, err error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(w.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no volume below %s", w.dir)
	}
	return names, nil
}

// findMissing returns those of the volumes that have no done file. One that cannot be looked at would be
// waited for without end, and is an error.
func (w waiter) findMissing(volumes []string) (missing []string, err error) {
	for _, v := range volumes {
		_, err := os.Stat(filepath.Join(w.dir, v, doneDir, w.name))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			missing = append(missing, v)
		case err != nil:
			return nil, fmt.Errorf("volume %s: user %d cannot see whether its data is there: %w", v, os.Getuid(), err)
		}
	}
	return missing, nil
}

// recordPodDone notes in the directory of done files that this Pod has its data, and reports whether all Pods that wait
// for the volume have. Several may be the last.
func (w waiter) recordPodDone(volume string) (bool, error) {
	pods, shared := w.shared[volume]
	if !shared {
		return true, nil
	}
	dir, prefix := filepath.Join(w.dir, volume, doneDir), w.name+"_"
	err := os.WriteFile(filepath.Join(dir, prefix+w.pod), nil, doneFileMode)
	if errors.Is(err, fs.ErrNotExist) { // another one was the last
		return false, nil
	}
	notes, globErr := filepath.Glob(filepath.Join(dir, prefix+"*"))
	return len(notes) >= pods, errors.Join(err, globErr)
}

// removeMarks removes the directories of done files. What stays since the user may not remove it does no
// harm. The time of the volume's own directory stays where the user may set it.
func (m *mover) removeMarks(w waiter, volumes []string) {
	for _, v := range volumes {
		volume := filepath.Join(w.dir, v)
		info, err := os.Stat(volume)
		last := false
		if err == nil {
			last, err = w.recordPodDone(v)
		}
		if err == nil && !last {
			continue
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(volume, doneDir))
		}
		if err != nil {
			_, _ = fmt.Fprintf(m.stderr, "volume %s: %s is left: %v\n", v, doneDir, err)
			continue
		}
		_ = os.Chtimes(volume, time.Time{}, info.ModTime())
	}
}
