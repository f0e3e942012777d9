package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Volumes that are stored and restored.
const (
	volumeRounds   = 2 // of which the faster counts
	filesOfADir    = 100
	smallFileBytes = 1024
	sideBySide     = 10 // volumes of one backup
	sideBytes      = 20 << 20
	storeLatency   = 20 * time.Millisecond
)

// volumeBench compares volume-mover with kopia's own command, each with its defaults, on one S3 server.
type volumeBench struct {
	*bench
	dir          string
	mover, kopia string
	server       *testbed.S3
	location     string

	mu   sync.Mutex
	peak float64
}

// measureVolumes stores and restores a tree of 20,000 files that is mib MiB large and one of 200,000 small files,
// and volumes side by side in a slow store.
func (b *bench) measureVolumes(ctx context.Context, mib int) error {
	v := &volumeBench{bench: b, dir: filepath.Join(b.Dir, "volumes")}
	if err := os.MkdirAll(v.cacheDir(), 0o700); err != nil {
		return err
	}
	server, meter, err := startMeteredS3(ctx, filepath.Join(v.dir, "s3"))
	if err != nil {
		return err
	}
	meter.Close()
	defer server.Stop()
	v.server = server
	if v.mover, err = testbed.Product("volume-mover"); err != nil {
		return err
	}
	if v.kopia, err = testbed.Binary("kopia"); err != nil {
		return err
	}
	if v.location, err = v.writeLocation("location.json", server.Endpoint); err != nil {
		return err
	}
	files := mib * 10
	for _, tree := range []struct {
		name         string
		files, bytes int
	}{{"", files, mib << 20 / files}, {".small", files * 10, smallFileBytes}} {
		if err := v.compareTree(ctx, tree.name, tree.files, tree.bytes); err != nil {
			return fmt.Errorf("%d files: %w", tree.files, err)
		}
	}
	if err := v.measureSideBySide(ctx); err != nil {
		return err
	}
	b.figures.Set("volume.peak_rss_mib", v.peak)
	return nil
}

// compareTree sets the ratios of one tree: files per second of the mover by those of kopia, and the time of an upload
// of an unchanged tree by kopia's.
func (v *volumeBench) compareTree(ctx context.Context, name string, files, size int) error {
	source := filepath.Join(v.dir, "tree"+name)
	if err := writeTree(source, files, size); err != nil {
		return err
	}
	best := map[string]time.Duration{}
	keep := func(what string, took time.Duration) {
		if least, ok := best[what]; !ok || took < least {
			best[what] = took
		}
	}
	for round := range volumeRounds {
		for _, m := range []volumeTool{v.newKopia(fmt.Sprintf("kopia-%d-%d", files, round)), v.newMover(fmt.Sprintf("mover-%d-%d", files, round))} {
			if err := m.createRepository(ctx); err != nil {
				return err
			}
			var snapshot string
			for _, what := range []string{"upload", "incremental"} {
				began := time.Now()
				id, err := m.storeTree(ctx, source)
				if err != nil {
					return err
				}
				snapshot = id
				keep(m.toolName()+what, time.Since(began))
			}
			target := filepath.Join(v.dir, "restored")
			began := time.Now()
			if err := m.restoreTree(ctx, snapshot, target); err != nil {
				return err
			}
			keep(m.toolName()+"restore", time.Since(began))
			if err := os.RemoveAll(target); err != nil {
				return err
			}
		}
	}
	v.figures.Set("volume.upload_ratio"+name, best["kopiaupload"].Seconds()/best["moverupload"].Seconds())
	v.figures.Set("volume.restore_ratio"+name, best["kopiarestore"].Seconds()/best["moverrestore"].Seconds())
	v.figures.Set("volume.incremental_ratio"+name, best["moverincremental"].Seconds()/best["kopiaincremental"].Seconds())
	return os.RemoveAll(source)
}

// measureSideBySide sets how many times as fast the volumes of one backup are stored side by side as one after the
// other, in a store that takes its time for each call.
func (v *volumeBench) measureSideBySide(ctx context.Context) error {
	slow, err := proxy.Start(v.server.Endpoint, &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, proxy.Handlers{
		Before: func(r *http.Request) error {
			select {
			case <-time.After(storeLatency):
			case <-r.Context().Done():
			}
			return nil
		},
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host }, // it is signed
	})
	if err != nil {
		return err
	}
	defer slow.Close()
	location, err := v.writeLocation("slow.json", slow.URL)
	if err != nil {
		return err
	}
	took := map[string]time.Duration{}
	for _, way := range []string{"serial", "parallel"} {
		m := &volumeMover{volumeBench: v, namespace: "side-" + way, volume: "data", location: location}
		if err := writeTree(filepath.Join(v.dir, way), 1, 1); err != nil {
			return err
		}
		if _, err := m.storeTree(ctx, filepath.Join(v.dir, way)); err != nil { // makes the repository
			return err
		}
		var group errgroup.Group
		if way == "serial" {
			group.SetLimit(1)
		}
		for i := range sideBySide {
			source := filepath.Join(v.dir, fmt.Sprintf("%s-%d", way, i))
			if err := writeTree(source, 20, sideBytes/20); err != nil {
				return err
			}
		}
		began := time.Now()
		for i := range sideBySide {
			group.Go(func() error {
				volume := *m
				volume.volume = fmt.Sprintf("data-%d", i)
				_, err := volume.storeTree(ctx, filepath.Join(v.dir, fmt.Sprintf("%s-%d", way, i)))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		took[way] = time.Since(began)
	}
	v.figures.Set("volume.parallel_ratio.10", took["serial"].Seconds()/took["parallel"].Seconds())
	return nil
}

// writeLocation writes a BackupStorageLocation with its credentials, as a mover Pod gets it.
func (v *volumeBench) writeLocation(name, endpoint string) (string, error) {
	config := v.server.LocationConfig()
	config["s3Url"] = endpoint
	settings, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	credentials, err := json.Marshal(v.server.CredentialsFile())
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`{"apiVersion":"velero.io/v1","kind":"BackupStorageLocation","metadata":{"name":"bench","namespace":"velero"},
"spec":{"provider":"aws","config":%s,"objectStorage":{"bucket":%q},"credential":{"name":"keys","key":"cloud"}}}
---
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"keys","namespace":"velero"},"stringData":{"cloud":%s}}
`, settings, bucket, credentials)
	path := filepath.Join(v.dir, name)
	return path, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.WriteFile(v.passwordFile(), []byte(volumePassword), 0o600))
}

const volumePassword = "bench"

func (v *volumeBench) cacheDir() string { return filepath.Join(v.dir, "cache") }

func (v *volumeBench) passwordFile() string { return filepath.Join(v.dir, "password") }

// runTool runs a command and returns what it printed. The largest resident set of a mover is kept.
func (v *volumeBench) runTool(ctx context.Context, isMover bool, env []string, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	var printed, failed bytes.Buffer
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), env...), &printed, &failed
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s %s", filepath.Base(name), args, err, printed.Bytes(), failed.Bytes())
	}
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok && isMover {
		v.mu.Lock()
		v.peak = max(v.peak, float64(usage.Maxrss)/1024) // KiB
		v.mu.Unlock()
	}
	return printed.Bytes(), nil
}

// writeTree writes files of random bytes into directories of 100.
func writeTree(dir string, files, size int) error {
	random := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%032x", len(dir)+files))))
	content := make([]byte, size)
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprintf("d%04d", i/filesOfADir))
		if i%filesOfADir == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		_, _ = random.Read(content)
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%02d", i%filesOfADir)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// hostAndPort returns host and port of a URL.
func hostAndPort(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil {
		return u.Host
	}
	return endpoint
}
