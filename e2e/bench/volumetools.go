package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// volumeTool stores and restores a directory.
type volumeTool interface {
	toolName() string
	// createRepository makes what the first upload needs.
	createRepository(ctx context.Context) error
	// storeTree returns the ID of the snapshot.
	storeTree(ctx context.Context, source string) (string, error)
	restoreTree(ctx context.Context, snapshot, target string) error
}

// volumeMover is volume-mover with a repository of its own.
type volumeMover struct {
	*volumeBench
	namespace, volume, location string
}

func (v *volumeBench) newMover(namespace string) *volumeMover {
	return &volumeMover{volumeBench: v, namespace: namespace, volume: "data", location: v.location}
}

func (m *volumeMover) toolName() string { return "mover" }

// createRepository has nothing to do: the first upload makes the repository.
func (m *volumeMover) createRepository(context.Context) error { return nil }

func (m *volumeMover) storeTree(ctx context.Context, source string) (string, error) {
	printed, err := m.run(ctx, "upload", "--create-repository", "--pod", "bench", "--volume", m.volume, "--source", source)
	if err != nil {
		return "", err
	}
	lines := bytes.Split(bytes.TrimSpace(printed), []byte("\n"))
	var last struct {
		Result struct {
			SnapshotID string `json:"snapshotID"`
		} `json:"result"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.Result.SnapshotID == "" {
		return "", fmt.Errorf("volume-mover printed no snapshot: %s", printed)
	}
	return last.Result.SnapshotID, nil
}

func (m *volumeMover) restoreTree(ctx context.Context, snapshot, target string) error {
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	_, err := m.run(ctx, "restore", "--snapshot", snapshot, "--target", target)
	return err
}

func (m *volumeMover) run(ctx context.Context, verb string, args ...string) ([]byte, error) {
	common := []string{"move", verb, "--location", m.location, "--password-file", m.passwordFile(), "--namespace", m.namespace, "--cache-dir", m.cacheDir()}
	return m.runTool(ctx, true, nil, m.mover, append(common, args...)...)
}

// kopiaCommand is kopia's own command with a repository of its own.
type kopiaCommand struct {
	*volumeBench
	prefix string
}

func (v *volumeBench) newKopia(prefix string) *kopiaCommand {
	return &kopiaCommand{volumeBench: v, prefix: prefix}
}

func (k *kopiaCommand) toolName() string { return "kopia" }

func (k *kopiaCommand) createRepository(ctx context.Context) error {
	s := k.server
	_, err := k.run(ctx, "repository", "create", "s3", "--bucket", bucket, "--endpoint", hostAndPort(s.Endpoint), "--disable-tls", "--region", s.Region,
		"--access-key", s.AccessKey, "--secret-access-key", s.SecretKey, "--prefix", k.prefix+"/", "--cache-directory", filepath.Join(k.cacheDir(), k.prefix), "--no-check-for-updates")
	if err == nil {
		_, err = k.run(ctx, "maintenance", "set", "--enable-quick=false", "--enable-full=false")
	}
	return err
}

func (k *kopiaCommand) storeTree(ctx context.Context, source string) (string, error) {
	printed, err := k.run(ctx, "snapshot", "create", source, "--json", "--no-progress")
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(printed), &made); err != nil || made.ID == "" {
		return "", fmt.Errorf("kopia printed no snapshot: %s", printed)
	}
	return made.ID, nil
}

func (k *kopiaCommand) restoreTree(ctx context.Context, snapshot, target string) error {
	_, err := k.run(ctx, "restore", snapshot, target, "--no-progress")
	return err
}

func (k *kopiaCommand) run(ctx context.Context, args ...string) ([]byte, error) {
	config := filepath.Join(k.dir, k.prefix+".config")
	env := []string{"KOPIA_PASSWORD=" + volumePassword, "KOPIA_CONFIG_PATH=" + config, "KOPIA_LOG_DIR=" + filepath.Join(k.dir, "logs")}
	return k.runTool(ctx, false, env, k.kopia, append([]string{"--config-file", config}, args...)...)
}
