package job

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

const (
	// maxVolumeInfo bounds the unpacked volume information of a backup, in bytes.
	maxVolumeInfo = 256 << 20
	// maxVolumes bounds the volumes in it.
	maxVolumes = 100_000
)

// volumeInfos reads the backup's volume information; backups of old versions have none. Only what
// was read whole and cannot be decoded is fatal.
func volumeInfos(ctx context.Context, store objectstore.Reader, backup string) ([]volumes.Info, error) {
	body, err := store.Get(ctx, layout.BackupVolumeInfo(backup))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the volume information: %w", err)
	}
	defer func() { _ = body.Close() }()
	from := &objectstore.ErrorReader{Reader: body}
	infos, err := decodeVolumeInfos(from)
	switch {
	case err != nil && from.Err != nil:
		return nil, fmt.Errorf("read the volume information: %w", from.Err)
	case err != nil:
		return nil, fatalErrorf("volume information of the backup: %w", err)
	}
	return infos, nil
}

func decodeVolumeInfos(r io.Reader) ([]volumes.Info, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	var infos []volumes.Info
	limits := jsonlimit.Limits{Text: maxVolumeInfo, Element: 1 << 20, Decoded: 16 << 20}
	err = jsonlimit.Each(zip, limits, func(info *volumes.Info) error {
		if len(infos) == maxVolumes {
			return fmt.Errorf("%w: of more than %d volumes", jsonlimit.ErrLimit, maxVolumes)
		}
		infos = append(infos, *info)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return infos, nil
}

// readSnapshots reads the backup's list of native snapshots, if its volume information lists any, or is
// missing.
func (p *restorePlanner) readSnapshots(ctx context.Context, infos []volumes.Info) ([]nativesnapshot.Snapshot, error) {
	if !ptr.Deref(p.in.restore.Spec.RestorePVs, true) || infos != nil && !slices.ContainsFunc(infos, volumes.Info.Native) {
		return nil, nil
	}
	list, err := nativesnapshot.Read(ctx, p.in.store, p.in.backup.Name)
	if errors.Is(err, nativesnapshot.ErrMalformed) {
		return nil, fatalErrorf("volume snapshots of the backup: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of volume snapshots: %w", err)
	}
	return list, nil
}

// volumesTaken reads from the files of the backup how the data of its volumes was backed up.
func (p *restorePlanner) volumesTaken(ctx context.Context) (t volumes.Taken, err error) {
	t.Infos, err = volumeInfos(ctx, p.in.store, p.in.backup.Name)
	if err != nil {
		return t, err
	}
	if t.Elsewhere, err = p.otherVolumeData(ctx); err != nil {
		return t, err
	}
	t.Snapshots, err = p.readSnapshots(ctx, t.Infos)
	return t, err
}

// otherVolumeData lists the volume data that is not in a native snapshot, beside that in the volume
// information.
func (p *restorePlanner) otherVolumeData(ctx context.Context) ([]volumedata.Data, error) {
	var list []volumedata.Data
	err := volumedata.EachListed(ctx, p.in.store, p.in.backup.Name, func(d volumedata.Data) error {
		list = append(list, d)
		return nil
	})
	if errors.Is(err, volumedata.ErrMalformed) {
		return nil, fatalErrorf("volume data of the backup: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the lists of volume data: %w", err)
	}
	return list, nil
}

// reportUnclaimed reports snapshots in the namespaces of the plan whose claim no file of the backup
// names.
func (p *restorePlanner) reportUnclaimed(out *preparedPlan) {
	if p.in.restoresFiles() {
		return
	}
	from := map[string]bool{}
	for _, ns := range out.Plan.Namespaces() {
		from[ns.Source] = true
	}
	for _, s := range out.Volumes.Unclaimed() {
		if namespace, _, _ := strings.Cut(s, "/"); from[namespace] {
			p.in.recorder.Error(outcome.General, fmt.Sprintf("CSI snapshot %s: it is not restored, the backup does not tell which claim it is of", s))
		}
	}
}

// openSnapshotters opens what makes volumes of snapshots; done ends it.
func (in *restoreInputs) openSnapshotters(ctx context.Context) (s restore.Snapshotters, done func()) {
	if in.cfg.Snapshotters == nil {
		return nil, func() {}
	}
	return in.cfg.Snapshotters(ctx, func(e joblog.Entry) { in.recorder.Note(&e) })
}
