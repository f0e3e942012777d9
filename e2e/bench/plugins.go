package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// pluginRounds is how often each backup is made; the fastest of each counts.
const pluginRounds = 5

// plugged is a runner's plugin directory: without one, with a plugin whose selector matches no
// object, with one that is called for each.
var plugged = []string{"", "unmatched", "matched"}

// measurePlugins measures what a plugin costs a backup of size objects. The three backups take turns, so
// that whatever else the machine does meets all.
func (b *bench) measurePlugins(ctx context.Context, size int) error {
	_, _ = fmt.Fprintf(b.Log, "%d objects without a plugin, with one that does not match, with one that does\n", size)
	namespace := namespaceOf(size)
	if !b.isFilled(size) {
		if err := b.createObjects(ctx, namespace, size, objectBytes); err != nil {
			return err
		}
	}
	if err := b.createObjects(ctx, namespaceOfFirst, 1, objectBytes); err != nil {
		return err
	}
	fastest := make([]time.Duration, len(plugged))
	for round := range pluginRounds {
		for i, name := range plugged {
			took, err := b.withPlugin(ctx, name, fmt.Sprintf("plugin-%s-%d", name, round), namespace)
			if err != nil {
				return err
			}
			fastest[i] = shorterTime(fastest[i], took)
		}
	}
	none, unmatched, matched := fastest[0], fastest[1], fastest[2]
	b.figures.Set("plugin.unmatched_overhead_percent", 100*(unmatched.Seconds()/none.Seconds()-1))
	b.figures.Set("plugin.matched_us_per_item", float64((matched-none).Microseconds())/float64(size))
	b.figures.Set("plugin.none_us_per_item", float64(none.Microseconds())/float64(size))
	return nil
}

// namespaceOfFirst has the one object of the first backup of each runner, which is not timed.
const namespaceOfFirst = "bench-first"

// withPlugin times the second backup of a runner: the first one makes the connections. A manifest-indexer that
// starts indexes all backups there are; the timed backup waits until that has ended.
func (b *bench) withPlugin(ctx context.Context, plugin, backup, namespace string) (took time.Duration, err error) {
	var args []string
	if plugin != "" {
		dir, err := b.pluginDir(plugin)
		if err != nil {
			return 0, err
		}
		args = []string{"--plugin-dir", dir}
	}
	err = b.withFleet(ctx, fleet.Config{Args: map[string][]string{"backup-runner": args}}, func(services *fleet.Fleet) error {
		if _, err := b.jobs.runBackup(ctx, backup+"-first", namespaceOfFirst); err != nil {
			return err
		}
		if err := awaitIndexed(ctx, services.Of("manifest-indexer")[0].GRPC); err != nil {
			return err
		}
		times, err := b.jobs.runBackup(ctx, backup, namespace)
		took = times.done
		return err
	})
	return took, err
}

// awaitIndexed waits until the manifest-indexer at the address has indexed all backups.
func awaitIndexed(ctx context.Context, address string) error {
	connection, err := connectService(address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	client := manifestv1.NewManifestServiceClient(connection)
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	return pollUntil(ctx, pollEvery, func() (bool, error) {
		answer, err := client.SearchItems(ctx, &manifestv1.SearchItemsRequest{Name: namespaceOfFirst, PageSize: 1})
		return err == nil && !answer.GetCoverage().GetIncomplete(), err
	})
}

// pluginDir is a directory with the plugin under that name.
func (b *bench) pluginDir(name string) (string, error) {
	dir := filepath.Join(b.Dir, "plugins", name)
	binary := filepath.Join(dir, name)
	if _, err := os.Lstat(binary); err == nil {
		return dir, nil
	}
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.Symlink(filepath.Join(root, "bin", "e2e", "benchplugin"), binary)
}
