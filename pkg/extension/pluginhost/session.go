package pluginhost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Session is one job's use of the plugins, with processes of its own, but for the SDK's
// asynchronous actions, see Operations. Everything it hands out works until Close. Safe for
// concurrent use.
type Session struct {
	host *Host
	*catalog
	ctx        context.Context
	log        *slog.Logger
	operations *Operations // nil for a session without the SDK's asynchronous actions

	mu        sync.Mutex
	workers   map[string]*worker // by binary, and by plugin and configuration where those have processes of their own
	providers map[string]any     // by plugin and configuration
	closed    bool
}

// Open begins a session. Processes start when they are first needed; the end of ctx interrupts
// starts, but only Close ends processes. log gets what the plugins log, at their level and with
// their fields; "plugin" names the binary. An error that a plugin logs is an error of the job, as
// in Velero: that is for log's handler to count.
func (h *Host) Open(ctx context.Context, log *slog.Logger) *Session {
	return &Session{
		host: h, catalog: h.known.Load(), ctx: ctx, log: log, operations: h.operations.Load(),
		workers: map[string]*worker{}, providers: map[string]any{},
	}
}

// Close ends the processes, and returns when they and everything else in their process groups are
// gone.
func (s *Session) Close() {
	s.mu.Lock()
	s.closed = true
	workers := slices.Collect(maps.Values(s.workers))
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.close)
	}
	all.Wait()
}

// workerFor returns the worker of a key, which is made when it is first asked for; its processes get
// env beyond the host's, and their deaths are counted under backoffKey. In a closed session it is a
// closed one.
func (s *Session) workerFor(key, backoffKey, path string, env ...string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.workers[key]; ok {
		return w
	}
	how := s.host.specFor(path, s.log)
	how.env = slices.Concat(how.env, env)
	w := newWorker(s.ctx, how)
	w.key, w.backoffs = backoffKey, s.host.backoffs
	s.workers[key] = w
	if s.closed {
		w.close()
	}
	return w
}

func (s *Session) pluginOf(r Registration) plugin {
	p := plugin{name: r.Name, registration: r}
	if isAsynchronous(r.Kind) {
		p.worker = s.operations.workerOf(r.Path)
	} else {
		p.worker = s.workerFor(r.Path, r.Path, r.Path)
	}
	return p
}

// runsAction reports whether an action runs: those of Velero's CSI support only with the feature.
func (s *Session) runsAction(r Registration) bool {
	return !strings.Contains(r.Name, "velero.io/csi-") || slices.Contains(s.host.cfg.Features, featureCSI)
}

// collectActions makes the actions of some kinds in the order in which they run: that of their names, and
// the asynchronous ones after all others.
func collectActions[A action.Action](s *Session, kinds []Kind, adapt func(Kind, plugin) A) []A {
	if s.operations == nil {
		kinds = slices.DeleteFunc(kinds, isAsynchronous)
	}
	var out, last []A
	for _, r := range s.effectivePlugins(kinds...) {
		switch {
		case !s.runsAction(r):
		case isAsynchronous(r.Kind):
			last = append(last, adapt(r.Kind, s.pluginOf(r)))
		default:
			out = append(out, adapt(r.Kind, s.pluginOf(r)))
		}
	}
	byName := func(a, b A) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortFunc(out, byName)
	slices.SortFunc(last, byName)
	return append(out, last...)
}

// MissingFromBackups returns what a backup does without: plugins for it that cannot be used, and
// binaries that may have some. The session's job is not whole then.
func (s *Session) MissingFromBackups() []BinaryError {
	return s.missingBinaries(s.operations != nil, KindBackupItemAction, KindBackupItemActionV2, KindItemBlockAction, KindAsyncBackupItemAction)
}

// MissingFromRestores returns what a restore does without, as MissingFromBackups does for a backup.
func (s *Session) MissingFromRestores() []BinaryError {
	return s.missingBinaries(s.operations != nil, KindRestoreItemAction, KindRestoreItemActionV2, KindAsyncRestoreItemAction)
}

// BackupItems returns the backup item actions of both versions, and after them the asynchronous
// ones, in the order in which they run.
func (s *Session) BackupItems() []action.BackupItem {
	return collectActions(s, []Kind{KindBackupItemAction, KindBackupItemActionV2, KindAsyncBackupItemAction}, func(k Kind, p plugin) action.BackupItem {
		switch k {
		case KindAsyncBackupItemAction:
			return &asyncBackup{async{p}}
		case KindBackupItemActionV2:
			return &backupItemV2{p}
		default:
			return &backupItemV1{p}
		}
	})
}

// RestoreItems returns the restore item actions of both versions, and after them the asynchronous
// ones, in the order in which they run.
func (s *Session) RestoreItems() []action.RestoreItem {
	return collectActions(s, []Kind{KindRestoreItemAction, KindRestoreItemActionV2, KindAsyncRestoreItemAction}, func(k Kind, p plugin) action.RestoreItem {
		switch {
		case k == KindAsyncRestoreItemAction:
			return &asyncRestore{async{p}}
		case k == KindRestoreItemAction:
			return &restoreItemV1{p}
		case p.registration.described:
			return &restoreItemV2{p}
		}
		return &restoreOperations{restoreItemV2{p}}
	})
}

// DeleteItems returns the delete item actions in the order in which they run.
func (s *Session) DeleteItems() []action.DeleteItem {
	return collectActions(s, []Kind{KindDeleteItemAction}, func(_ Kind, p plugin) action.DeleteItem { return &deleteItem{p} })
}

// ItemBlocks returns the item block actions in the order in which they run.
func (s *Session) ItemBlocks() []action.ItemBlock {
	return collectActions(s, []Kind{KindItemBlockAction}, func(_ Kind, p plugin) action.ItemBlock { return &itemBlock{p} })
}

// ObjectStore returns the provider that a location names, "aws" or "example.io/store", with the
// location's configuration: the same one for the same configuration. An unknown one is ErrUnknown.
// The process starts, and is configured, at the first call.
func (s *Session) ObjectStore(provider string, config map[string]string) (action.ObjectStore, error) {
	o, err := openProvider(s, KindObjectStore, provider, config, newObjectStore)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// VolumeSnapshotter is like ObjectStore.
func (s *Session) VolumeSnapshotter(provider string, config map[string]string) (action.VolumeSnapshotter, error) {
	v, err := openProvider(s, KindVolumeSnapshotter, provider, config, newVolumeSnapshotter)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func openProvider[P any](s *Session, kind Kind, provider string, config map[string]string, adapt func(plugin, map[string]string) *P) (*P, error) {
	name := FullName(provider)
	r, ok := s.findRegistration(kind, name)
	if !ok {
		return nil, fmt.Errorf("%w: %s %s", ErrUnknown, kind, name)
	}
	// %q and the order of keys that package fmt gives maps make this one text per configuration.
	key := fmt.Sprintf("%s %s %q", kind, name, config)
	// The names of files are of this session; what is known of a plugin survives it.
	lasting := maps.Clone(config)
	delete(lasting, InstalledCredentials)
	delete(lasting, credentialsFile)
	backoffKey := fmt.Sprintf("%s %s %q", kind, name, lasting)
	w := s.workerFor(key, backoffKey, r.Path, installedVariables(s.host.cfg.Environ, config[InstalledCredentials])...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := s.providers[key].(*P); ok {
		return made, nil
	}
	seen := maps.Clone(config)
	delete(seen, InstalledCredentials)
	made := adapt(plugin{name: name, registration: r, worker: w}, seen)
	s.providers[key] = made
	return made, nil
}
