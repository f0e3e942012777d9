// Package locations keeps the status of BackupStorageLocations: whether each can be used, and which
// is the default.
package locations

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

const (
	// scanPeriod is how often locations are looked at (Velero 1.18).
	scanPeriod = 10 * time.Second
	// checkTimeout bounds the validation of one location.
	checkTimeout = 30 * time.Second
	// parallel is how many locations are validated at once.
	parallel = 4
)

// Checker validates a location; note is worth showing on one that is fine.
type Checker interface {
	Validate(ctx context.Context, loc *velerov1.BackupStorageLocation) (note string, err error)
}

// Events records Events about a location, without waiting for anything; an events.EventRecorder is
// one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what a Validator needs.
type Config struct {
	Reader    client.Reader // uncached
	Cached    client.Reader // lists the locations, to find those that are due
	Client    client.Client
	Namespace string
	Checker   Checker
	Clock     clock.WithTicker
	Log       *slog.Logger
	// Frequency is how often a location without a frequency of its own is validated; 0 means once.
	Frequency time.Duration
	// Default names the location that becomes the default when this name is another one than before.
	Default string
	// Events gets each change between available and unavailable.
	Events Events
	// Metrics takes the gauge of the locations.
	Metrics prometheus.Registerer
}

// Validator validates locations when they are new, changed, or due.
type Validator struct {
	Config
	shown availabilityGauge
	wake  rungroup.Signal

	refused map[types.UID]bool // locations with an Event that they do not become the default

	mu   sync.Mutex
	seen map[types.UID]fingerprint // of the specs that were validated last
}

// fingerprint identifies a spec.
type fingerprint [sha256.Size]byte

// New returns a Validator; it registers its metrics.
func New(c Config) *Validator {
	v := &Validator{Config: c, wake: rungroup.NewSignal(), seen: map[types.UID]fingerprint{}, refused: map[types.UID]bool{}}
	c.Metrics.MustRegister(&v.shown)
	return v
}

// Wake requests a pass soon; it never blocks.
func (v *Validator) Wake() { v.wake.Wake() }

// Run makes passes until ctx ends. Failures are logged and tried again. The metric is shown
// meanwhile, and not afterwards: another replica shows it then.
func (v *Validator) Run(ctx context.Context) error {
	defer v.shown.setLocations(nil)
	return rungroup.RunPeriodically(ctx, v.Clock, scanPeriod, v.wake, func(ctx context.Context) {
		if err := v.Pass(ctx); err != nil && ctx.Err() == nil {
			v.Log.Error("Failed to validate locations; will retry", "error", err)
		}
	})
}

// Pass checks every location once.
func (v *Validator) Pass(ctx context.Context) error {
	var list velerov1.BackupStorageLocationList
	if err := v.Cached.List(ctx, &list, client.InNamespace(v.Namespace)); err != nil {
		return fmt.Errorf("list backup storage locations: %w", err)
	}
	if err := v.ensureDefault(ctx, list.Items); err != nil {
		return err
	}
	v.forgetLocations(list.Items)
	v.shown.setLocations(list.Items)
	var group errgroup.Group // without a context: one that fails does not end the others
	group.SetLimit(parallel)
	for i := range list.Items {
		if loc := &list.Items[i]; v.isValidationDue(loc) {
			group.Go(func() error { return v.validateLocation(ctx, loc) })
		}
	}
	err := group.Wait()
	v.shown.setLocations(list.Items)
	return err
}

// isValidationDue follows Velero 1.18: never validated, changed, or not for the frequency of the location or
// else of the server.
func (v *Validator) isValidationDue(loc *velerov1.BackupStorageLocation) bool {
	last := loc.Status.LastValidationTime
	if last == nil || loc.Status.Phase == "" {
		return true
	}
	v.mu.Lock()
	before, known := v.seen[loc.UID]
	v.mu.Unlock()
	if known && before != specFingerprint(loc) {
		return true
	}
	frequency := v.Frequency
	if f := loc.Spec.ValidationFrequency; f != nil && f.Duration >= 0 {
		frequency = f.Duration
	}
	return frequency > 0 && v.Clock.Now().Sub(last.Time) >= frequency
}

func (v *Validator) validateLocation(ctx context.Context, loc *velerov1.BackupStorageLocation) error {
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	note, failure := v.Checker.Validate(checking, loc)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	spec := specFingerprint(loc)
	status := velerov1.BackupStorageLocationStatus{Phase: velerov1.LocationPhaseAvailable, Message: note}
	if failure != nil {
		status.Phase = velerov1.LocationPhaseUnavailable
		status.Message = fmt.Sprintf("BackupStorageLocation %q is unavailable: %v", loc.Name, failure)
	}
	was := loc.Status.Phase
	failpoint.Hit("manifest-indexer/location-before-status")
	err := kube.Update(ctx, v.Reader, v.Client, loc, func(l *velerov1.BackupStorageLocation) error {
		if specFingerprint(l) != spec {
			return kube.ErrSkip // changed meanwhile: the next pass handles it
		}
		now := metav1.NewTime(v.Clock.Now())
		l.Status.Phase, l.Status.Message, l.Status.LastValidationTime = status.Phase, status.Message, &now
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	failpoint.Hit("manifest-indexer/location-status-written")
	v.mu.Lock()
	v.seen[loc.UID] = spec
	v.mu.Unlock()
	if err == nil && loc.Status.Phase != was {
		v.reportPhase(loc)
	}
	return nil
}

// reportPhase logs the phase of a location, and records it as an Event.
func (v *Validator) reportPhase(loc *velerov1.BackupStorageLocation) {
	v.Log.Info("Location changed", "location", loc.Name, "phase", string(loc.Status.Phase), "message", loc.Status.Message)
	kind, note := corev1.EventTypeNormal, "can be used"
	if loc.Status.Phase == velerov1.LocationPhaseUnavailable {
		kind = corev1.EventTypeWarning
	}
	if loc.Status.Message != "" {
		note = loc.Status.Message
	}
	// At most 1024 bytes (events.k8s.io/v1), and a rune has up to four.
	v.Events.Eventf(loc, nil, kind, string(loc.Status.Phase), "Validate", "%.250s", note)
}

// forgetLocations drops what is known of locations that are gone.
func (v *Validator) forgetLocations(locs []velerov1.BackupStorageLocation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.seen, func(uid types.UID, _ fingerprint) bool {
		return !slices.ContainsFunc(locs, func(l velerov1.BackupStorageLocation) bool { return l.UID == uid })
	})
}

// specFingerprint identifies a spec; spec.default does not matter for validity.
func specFingerprint(loc *velerov1.BackupStorageLocation) fingerprint {
	spec := loc.Spec
	spec.Default = false
	data, err := json.Marshal(struct {
		Spec        velerov1.BackupStorageLocationSpec
		Annotations map[string]string
	}{spec, loc.Annotations})
	if err != nil {
		return fingerprint{} // cannot happen: the type holds only strings, numbers and maps of strings
	}
	return sha256.Sum256(data)
}
