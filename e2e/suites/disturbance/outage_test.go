package disturbance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// apiServerDies breaks every connection to the API server and refuses new ones for a while.
func (b *bed) apiServerDies(t *testing.T) {
	b.testOutage(t, "dies", b.Site.Cluster.KillAPIServer, func() error {
		return b.Site.Audit.Start(func() error { return b.Site.Cluster.RestartAPIServer(t.Context()) })
	})
}

// apiServerHangs leaves every request to the API server without an answer for a while.
func (b *bed) apiServerHangs(t *testing.T) {
	b.testOutage(t, "hangs", b.Site.Cluster.PauseAPIServer, b.Site.Cluster.ResumeAPIServer)
}

// testOutage takes the API server away for longer than the claim timeout while two backups and a
// restore are at different steps of their work. No claim expires, so nothing is taken over. A
// user edits the jobs all the time, which changes nothing either.
func (b *bed) testOutage(t *testing.T, name string, begin, end func() error) {
	first := name + "-first"
	unlisted := b.gate.Hold(gate.Writes("backups/" + first + "/"))
	t.Cleanup(unlisted.Release)
	b.Site.Backup(t, first, b.bucket, "beta")
	running, release := b.startHeld(t, name, "alpha")
	site.AwaitHeld(t, unlisted)
	edits := b.startEditing(t, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: first}}, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: name}})
	deaths := b.countDeaths(t)

	began := time.Now()
	require.NoError(t, begin())
	unlisted.Release() // they run into the outage
	release()
	disturbanceEnd(t, began, disturbanceLength(2*claimTimeout))
	require.NoError(t, end())

	b.checkBackup(t, first, "beta")
	running.requireEnd(t)
	b.Site.History.RanOnce(t, "Backup", first)
	b.Site.History.RanOnce(t, "Backup", name)
	// A restore's runner may end its attempt and make another one, under the next epoch, but no other
	// runner takes it over.
	for _, over := range b.Site.History.HandOvers(t, "Restore", name) {
		require.True(t, over.Free, "taken from a live runner: %s", over.Steps)
	}
	require.Equal(t, deaths, b.countDeaths(t), "no runner is taken for dead")
	require.Greater(t, edits(), 10)
}

// realDeath shows that the scenarios above would see a takeover if there was one: a runner is
// killed in the middle of a backup, which another one, that says so, goes on with.
func (b *bed) realDeath(t *testing.T) {
	const name = "killed"
	running, release := b.startHeld(t, name, "alpha")
	deaths := b.countDeaths(t)
	holder := b.Site.History.Of("Backup", name)[len(b.Site.History.Of("Backup", name))-1].Holder
	for _, m := range b.Site.Fleet.Of("backup-runner") {
		log, err := os.ReadFile(m.LogPath())
		require.NoError(t, err)
		if strings.Contains(string(log), "instance="+holder) {
			m.Kill()
		}
	}
	release()
	running.requireEnd(t)
	require.Greater(t, b.countDeaths(t), deaths)
	over := b.Site.History.HandOvers(t, "Backup", name)
	require.Len(t, over, 1)
	require.False(t, over[0].Free)
	t.Logf("taken over %s after the last write of the dead runner", over[0].Pause)
}

// countDeaths counts how often a runner said that another one is gone.
func (b *bed) countDeaths(t *testing.T) int {
	t.Helper()
	n := 0
	for _, service := range []string{"backup-runner", "restore-runner"} {
		for _, m := range b.Site.Fleet.Of(service) {
			log, err := os.ReadFile(m.LogPath())
			require.NoError(t, err)
			n += strings.Count(string(log), "Instance is gone")
		}
	}
	return n
}

// startEditing changes a label and an annotation of the objects every 100 ms until the returned function is
// called, which returns how many edits were made.
func (b *bed) startEditing(t *testing.T, edited ...client.Object) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var group sync.WaitGroup
	n := 0
	group.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			for _, o := range edited {
				o.SetNamespace(site.Server)
				patch := fmt.Sprintf(`{"metadata":{"labels":{"edit":"%d"},"annotations":{"example.com/edit":"%d"}}}`, n, n)
				limited, done := context.WithTimeout(ctx, time.Second)
				if b.Site.Client.Patch(limited, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch))) == nil { // not during the outage
					n++
				}
				done()
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	return func() int {
		cancel()
		group.Wait()
		return n
	}
}
