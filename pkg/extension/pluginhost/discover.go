package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// askedAtOnce is how many binaries are started together.
const askedAtOnce = 4

// contractKinds translates the kinds of Holdfast's own contract.
var contractKinds = map[pluginv1.Kind]Kind{
	pluginv1.Kind_KIND_BACKUP_ITEM_ACTION:        KindBackupItemAction,
	pluginv1.Kind_KIND_RESTORE_ITEM_ACTION:       KindRestoreItemActionV2,
	pluginv1.Kind_KIND_DELETE_ITEM_ACTION:        KindDeleteItemAction,
	pluginv1.Kind_KIND_ITEM_BLOCK_ACTION:         KindItemBlockAction,
	pluginv1.Kind_KIND_OBJECT_STORE:              KindObjectStore,
	pluginv1.Kind_KIND_VOLUME_SNAPSHOTTER:        KindVolumeSnapshotter,
	pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION:  KindAsyncBackupItemAction,
	pluginv1.Kind_KIND_ASYNC_RESTORE_ITEM_ACTION: KindAsyncRestoreItemAction,
}

// listPlugins lists the plugins of each binary.
func (h *Host) listPlugins(ctx context.Context, paths []string) []binaryListing {
	listings := make([]binaryListing, len(paths))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, path := range paths {
		group.Go(func() error {
			listings[i] = h.listBinary(ctx, path)
			return nil
		})
	}
	_ = group.Wait() // no part fails: the errors are in the listings
	return listings
}

func (h *Host) listBinary(ctx context.Context, path string) binaryListing {
	w := newWorker(ctx, h.specFor(path, h.cfg.Log))
	defer w.close()
	l := binaryListing{path: path}
	c := pluginCall{who: who{name: filepath.Base(path)}, method: "ListPlugins", within: h.cfg.Limits.Query}
	l.err = w.callProcess(ctx, c, func(ctx context.Context, p *process) error {
		answer, err := velero.NewPluginListerClient(p.conn).ListPlugins(ctx, &velero.Empty{})
		for _, id := range answer.GetPlugins() {
			// The command is the plugin's own idea of its path; what was found is what is run.
			l.plugins = append(l.plugins, Registration{Kind: Kind(id.GetKind()), Name: id.GetName(), Path: path})
		}
		return err
	})
	if l.err == nil {
		l.err = l.readDescriptions(ctx, w, c)
	}
	return l
}

// readDescriptions reads more through Holdfast's own contract, which plain Velero plugins do not serve.
func (l *binaryListing) readDescriptions(ctx context.Context, w *worker, c pluginCall) error {
	c.method = "Describe"
	err := w.callProcess(ctx, c, func(ctx context.Context, p *process) error {
		answer, err := pluginv1.NewPluginServiceClient(p.conn).Describe(ctx, &pluginv1.DescribeRequest{})
		if err != nil {
			return err
		}
		for i, described := range answer.GetPlugins() {
			if err := l.addPlugin(described); err != nil {
				l.problems = append(l.problems, fmt.Errorf("%w: Describe: plugins[%d]: %w", ErrMalformed, i, err))
			}
		}
		return nil
	})
	var remote *RemoteError
	if errors.As(err, &remote) && remote.Code == codes.Unimplemented {
		return nil
	}
	return err
}

// addPlugin completes the entry of a plugin from the list of Velero's kinds, or adds one of our kinds.
func (l *binaryListing) addPlugin(described *pluginv1.Plugin) error {
	kind, ok := contractKinds[described.GetKind()]
	if !ok {
		return fmt.Errorf("kind: unknown value %d", described.GetKind())
	}
	if isAsynchronous(kind) {
		l.plugins = append(l.plugins, Registration{Kind: kind, Name: described.GetName(), Path: l.path, Touches: described.GetTouches(), described: true})
		return nil
	}
	for i := range l.plugins {
		if p := &l.plugins[i]; p.Name == described.GetName() && p.Kind == kind {
			p.Touches, p.described = described.GetTouches(), true
			return nil
		}
	}
	return fmt.Errorf("%s %q is missing in the list of plugins", kind, clipText(described.GetName()))
}
