// Package settings reads what may be changed while the service runs: ConfigMap holdfast-settings in
// the server namespace.
package settings

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// Name is the name of the ConfigMap.
const Name = "holdfast-settings"

// Keys of the ConfigMap's data. Values are whole numbers from 1 on; an absent key means the value
// of the flag of that name.
const (
	ConcurrentBackups  = "concurrent-backups"
	ConcurrentRestores = "concurrent-restores"
)

// Events records what is wrong with an object; an events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what Settings work with.
type Config struct {
	Reader    client.Reader // uncached
	Namespace string
	Flags     ledger.Limits // the limits without the ConfigMap
	Events    Events
	Log       *slog.Logger
}

// Settings are read anew at every question. Safe for concurrent use.
type Settings struct {
	config Config

	mu       sync.Mutex
	good     map[string]int    // the last readable values
	reported map[string]string // unreadable ones that were reported
}

// New returns Settings.
func New(c Config) *Settings {
	return &Settings{config: c, good: map[string]int{}, reported: map[string]string{}}
}

// Limits returns how many jobs may run at once now. In the place of a value that cannot be read
// stands the last one that could, or else the flag; that is logged and made an Event once. The
// error is the API server's.
func (s *Settings) Limits(ctx context.Context) (ledger.Limits, error) {
	cm := &corev1.ConfigMap{}
	err := s.config.Reader.Get(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: Name}, cm)
	if client.IgnoreNotFound(err) != nil {
		return ledger.Limits{}, fmt.Errorf("read ConfigMap %s: %w", Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limits := ledger.Limits{
		Backups:  s.readNumber(cm, ConcurrentBackups, s.config.Flags.Backups),
		Restores: s.readNumber(cm, ConcurrentRestores, s.config.Flags.Restores),
	}
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		if key != ConcurrentBackups && key != ConcurrentRestores {
			s.reportOnce(cm, key, "is no setting")
		}
	}
	maps.DeleteFunc(s.reported, func(key, _ string) bool { _, there := cm.Data[key]; return !there })
	return limits, nil
}

func (s *Settings) readNumber(cm *corev1.ConfigMap, key string, flag int) int {
	text, set := cm.Data[key]
	if !set {
		delete(s.good, key)
		return flag
	}
	n, err := strconv.Atoi(text)
	if err == nil && n > 0 {
		s.good[key] = n
		delete(s.reported, key)
		return n
	}
	last, known := s.good[key]
	if !known {
		last = flag
	}
	s.reportOnce(cm, key, fmt.Sprintf("is not a whole number from 1 on; %d stays", last))
	return last
}

// reportOnce reports a key once for every value it has.
func (s *Settings) reportOnce(cm *corev1.ConfigMap, key, problem string) {
	text := cm.Data[key]
	if said, ok := s.reported[key]; ok && said == text {
		return
	}
	s.reported[key] = text
	s.config.Log.Warn("Setting is invalid; ignoring it", "configMap", Name, "key", key, "value", text, "problem", problem)
	s.config.Events.Eventf(cm, nil, corev1.EventTypeWarning, "UnusableSetting", "Read", "data[%s]: %.64q %s", key, text, problem)
}
