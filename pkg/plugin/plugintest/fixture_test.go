package plugintest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// funcs is an action of any kind made of functions.
type funcs struct {
	plugin.ItemsReady
	selector plugin.Selector
	err      error
}

func (f funcs) AppliesTo(context.Context) (plugin.Selector, error) { return f.selector, f.err }

type backupFunc struct {
	funcs
	run func(ctx context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error)
}

func (f backupFunc) Execute(ctx context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	return f.run(ctx, in)
}

type restoreFunc struct {
	funcs
	run   func(in *plugin.RestoreInput) (*plugin.RestoreOutput, error)
	ready func(restore *plugin.Job, items []plugin.ResourceIdentifier) (bool, error)
}

func (f restoreFunc) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	return f.run(in)
}

func (f restoreFunc) AreAdditionalItemsReady(ctx context.Context, restore *plugin.Job, items []plugin.ResourceIdentifier) (bool, error) {
	if f.ready == nil {
		return f.ItemsReady.AreAdditionalItemsReady(ctx, restore, items)
	}
	return f.ready(restore, items)
}

type deleteFunc struct {
	funcs
	run func(in *plugin.BackupInput) error
}

func (f deleteFunc) Execute(_ context.Context, in *plugin.BackupInput) error { return f.run(in) }

type blockFunc struct {
	funcs
	run func(in *plugin.BackupInput) ([]plugin.ResourceIdentifier, error)
}

func (f blockFunc) GetRelatedItems(_ context.Context, in *plugin.BackupInput) ([]plugin.ResourceIdentifier, error) {
	return f.run(in)
}

// mover keeps operations in memory, as an action does whose work lives in its process.
type mover struct {
	plugin.Everything
	mu     sync.Mutex
	starts map[string]string // idempotency key to operation
	ended  map[string]plugin.Progress
	begun  time.Time
	lines  []plugin.LogLine
}

func newMover(begun time.Time) *mover {
	return &mover{starts: map[string]string{}, ended: map[string]plugin.Progress{}, begun: begun}
}

func (m *mover) beginMove(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.starts[key]; ok {
		return id
	}
	id := fmt.Sprintf("op-%d", len(m.starts)+1)
	m.starts[key] = id
	return id
}

func (m *mover) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(slices.Collect(maps.Values(m.starts)), op.ID) {
		return plugin.Progress{}, fmt.Errorf("%s of %s: %w", op.ID, op.Job.Name(), plugin.ErrNoOperation)
	}
	if p, ok := m.ended[op.ID]; ok {
		return p, nil
	}
	return plugin.Progress{State: plugin.Running, Done: 3, Total: 10, Unit: "Bytes", Description: "copying", Started: m.begun, Updated: m.begun.Add(time.Second)}, nil
}

func (m *mover) Cancel(_ context.Context, op plugin.Operation, grace time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[op.ID] = plugin.Progress{State: plugin.Cancelled, Description: "within " + grace.String()}
	return true, nil
}

func (m *mover) Logs(ctx context.Context, _ plugin.Operation, options plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		for _, line := range m.lines {
			if !line.Time.Before(options.Since) && !yield(line, nil) {
				return
			}
		}
		if options.Follow {
			<-ctx.Done()
			yield(plugin.LogLine{}, ctx.Err())
		}
	}
}

type backupMover struct{ *mover }

func (m backupMover) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	if in.Item.GetName() == "skip" {
		return nil, nil
	}
	in.Item.SetLabels(map[string]string{"moved": in.Backup.Name()})
	claim := plugin.ResourceIdentifier{Resource: "persistentvolumeclaims", Namespace: in.Item.GetNamespace(), Name: in.Item.GetName()}
	return &plugin.AsyncBackupOutput{
		Item: in.Item, OperationID: m.beginMove(in.IdempotencyKey), InProcess: true,
		AdditionalItems:    []plugin.ResourceIdentifier{{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots", Namespace: "ns", Name: "s"}},
		PostOperationItems: []plugin.ResourceIdentifier{claim},
	}, nil
}

type restoreMover struct{ *mover }

func (m restoreMover) Start(_ context.Context, in *plugin.AsyncRestoreInput) (*plugin.AsyncRestoreOutput, error) {
	return &plugin.AsyncRestoreOutput{OperationID: m.beginMove(in.IdempotencyKey), SkipRestore: in.ItemFromBackup.GetLabels()["skip"] != ""}, nil
}

// memory is an object store in memory.
type memory struct {
	mu      sync.Mutex
	config  map[string]string
	objects map[string][]byte
}

func (m *memory) Init(_ context.Context, config map[string]string) error {
	if config["region"] == "" {
		return errors.New("config: region is missing")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config = config
	return nil
}

func (m *memory) PutObject(_ context.Context, bucket, key string, body io.Reader) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[bucket+"/"+key] = content
	return nil
}

func (m *memory) ObjectExists(_ context.Context, bucket, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.objects[bucket+"/"+key]
	return ok, nil
}

func (m *memory) GetObject(_ context.Context, bucket, key string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.objects[bucket+"/"+key]
	if !ok {
		return nil, fmt.Errorf("no object %s", key)
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

func (m *memory) ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) ([]string, error) {
	keys, err := m.ListObjects(ctx, bucket, prefix)
	var out []string
	for _, key := range keys {
		if head, _, ok := strings.Cut(strings.TrimPrefix(key, prefix), delimiter); ok {
			out = append(out, prefix+head+delimiter)
		}
	}
	return slices.Compact(out), err
}

func (m *memory) ListObjects(_ context.Context, bucket, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for key := range m.objects {
		if rest, ok := strings.CutPrefix(key, bucket+"/"); ok && strings.HasPrefix(rest, prefix) {
			keys = append(keys, rest)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (m *memory) DeleteObject(_ context.Context, bucket, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, bucket+"/"+key)
	return nil
}

func (m *memory) CreateSignedURL(_ context.Context, bucket, key string, ttl time.Duration) (string, error) {
	return fmt.Sprintf("https://%s.example/%s?ttl=%s", bucket, key, ttl), nil
}

// disks snapshots volumes by name.
type disks struct{ deleted []string }

func (*disks) Init(context.Context, map[string]string) error { return nil }

func (*disks) CreateVolumeFromSnapshot(_ context.Context, snapshot, kind, zone string, iops int64) (string, error) {
	return fmt.Sprintf("vol-of-%s-%s-%s-%d", snapshot, kind, zone, iops), nil
}

func (*disks) GetVolumeInfo(_ context.Context, volume, zone string) (string, int64, error) {
	return "fast-" + volume + "-" + zone, 4000, nil
}

func (*disks) CreateSnapshot(_ context.Context, volume, zone string, tags map[string]string) (string, error) {
	return "snap-" + volume + "-" + zone + "-" + tags["velero.io/backup"], nil
}

func (d *disks) DeleteSnapshot(_ context.Context, snapshot string) error {
	d.deleted = append(d.deleted, snapshot)
	return nil
}

func (*disks) GetVolumeID(_ context.Context, volume *unstructured.Unstructured) (string, error) {
	id, _, err := unstructured.NestedString(volume.Object, "spec", "disk")
	return id, err
}

func (*disks) SetVolumeID(_ context.Context, volume *unstructured.Unstructured, id string) (*unstructured.Unstructured, error) {
	return volume, unstructured.SetNestedField(volume.Object, id, "spec", "disk")
}
