package app

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// noLists is a cluster that nothing is read from.
type noLists struct{}

func (noLists) List(context.Context, rawlist.Request, rawlist.Sink) error { return nil }

func openActions(t *testing.T, spec velerov1.BackupSpec, annotations map[string]string) collect.Actions {
	t.Helper()
	base := service.Base{Options: service.Defaults(Name, Ports), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	host, err := pluginhost.NewForService(t.Context(), base, service.NewConfig[pluginhost.Flags](), nil)
	require.NoError(t, err)
	a := &actionSource{host: host, base: base, lists: noLists{}, podVolumes: &podVolumeSource{timeout: podvolume.DefaultTimeout}}
	filter, err := selection.NewFilter(selection.FromBackup(&spec), []string{"*"}, &resource.Catalog{})
	require.NoError(t, err)
	set := a.Open(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: spec}, &resource.Catalog{}, filter, func(joblog.Entry) {}, nil)
	t.Cleanup(set.Close)
	return set
}

func actionNames[A action.Action](all []A) (names []string) {
	for _, a := range all {
		names = append(names, a.Name())
	}
	return names
}

func TestBuiltInActionsAreOpened(t *testing.T) {
	set := openActions(t, velerov1.BackupSpec{}, nil)
	require.Equal(t, []string{"velero.io/pod", "velero.io/pv", "velero.io/service-account", podvolume.NameBackup}, actionNames(set.Items))
	require.NotNil(t, set.PodVolumes)
	require.Empty(t, set.Blocks, "everything that belongs together is selected anyway")
	require.Empty(t, set.Warnings)
	require.True(t, set.IsProcessCrash(&pluginhost.Error{Err: pluginhost.ErrCrashed}))
	require.True(t, set.IsNotSent(fmt.Errorf("x: %w", &pluginhost.Error{Err: pluginhost.ErrStart})))
	require.False(t, set.IsNotSent(&pluginhost.Error{Err: pluginhost.ErrCrashed, Sent: true}))
	require.False(t, set.IsNotSent(pluginhost.ErrStart), "an action without a process may have begun something")

	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for _, spec := range []velerov1.BackupSpec{{LabelSelector: labels}, {OrLabelSelectors: []*metav1.LabelSelector{labels}}} {
		require.Len(t, openActions(t, spec, nil).Blocks, 3)
	}
}

// What built-in actions name is among what is remembered for them. The volume of a claim comes with
// it anyway.
func TestBuiltInActionsAskForWhatTheySay(t *testing.T) {
	set := openActions(t, velerov1.BackupSpec{}, nil)
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	for kind, body := range map[string]string{
		"velero.io/pod": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a"},"spec":{"priorityClassName":"high","volumes":[{"persistentVolumeClaim":{"claimName":"c"}}]}}`,
		"velero.io/pv":  `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"a"},"spec":{"volumeName":"v","dataSource":{}},"status":{"phase":"Bound"}}`,
	} {
		for _, a := range set.Items {
			if a.Name() != kind {
				continue
			}
			r, err := a.Execute(t.Context(), action.FromJSON([]byte(body)), backup)
			require.NoError(t, err)
			require.Len(t, r.Additional, map[string]int{"velero.io/pod": 2}[kind])
			for _, item := range r.Additional {
				require.Contains(t, set.Asks, item.GroupResource)
			}
			raw, err := r.Object.JSON()
			require.NoError(t, err)
			require.NotContains(t, string(raw), "dataSource")
		}
	}
}

// The time that post hooks wait is the flag's, or that of an annotation that can be used.
func TestTheAnnotationOfTheTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": podvolume.DefaultTimeout, "10m": 10 * time.Minute, "soon": podvolume.DefaultTimeout, "-1s": podvolume.DefaultTimeout} {
		set := openActions(t, velerov1.BackupSpec{}, map[string]string{velerov1.AnnotationPodVolumeTimeout: text})
		require.Equal(t, want, set.PodVolumes.(*podvolume.Backupper).Timeout, text)
		require.Equal(t, text == "soon" || text == "-1s", len(set.Warnings) == 1, text)
	}
}

// A claim waits for no Pod that the backup does not take.
func TestPodsThatTheFilterTakes(t *testing.T) {
	pod := func(namespace string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: labels}}
	}
	app := map[string]string{"app": "x"}
	for name, tt := range map[string]struct {
		spec velerov1.BackupSpec
		pod  *corev1.Pod
		want bool
	}{
		"selected":          {velerov1.BackupSpec{}, pod("a", nil), true},
		"another namespace": {velerov1.BackupSpec{}, pod("b", nil), false},
		"left out by label": {velerov1.BackupSpec{}, pod("a", map[string]string{"velero.io/exclude-from-backup": "true"}), false},
		"no Pods":           {velerov1.BackupSpec{ExcludedResources: []string{"pods"}}, pod("a", nil), false},
		"labels":            {velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: app}}, pod("a", app), true},
		"other labels":      {velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: app}}, pod("a", nil), false},
	} {
		filter, err := selection.NewFilter(selection.FromBackup(&tt.spec), []string{"a"}, &resource.Catalog{})
		require.NoError(t, err)
		require.Equal(t, tt.want, selectsPod(filter)(tt.pod), name)
	}
}
