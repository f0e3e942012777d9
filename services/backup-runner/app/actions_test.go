package app

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// noLists is a cluster that nothing is read from.
type noLists struct{}

func (noLists) List(context.Context, rawlist.Request, rawlist.Sink) error { return nil }

func openActions(t *testing.T, spec velerov1.BackupSpec) collect.Actions {
	t.Helper()
	base := service.Base{Options: service.Defaults(Name, Ports), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	host, err := pluginhost.NewForService(t.Context(), base, service.NewConfig[pluginhost.Flags](), nil)
	require.NoError(t, err)
	a := &actionSource{host: host, base: base, lists: noLists{}}
	set := a.Open(t.Context(), &velerov1.Backup{Spec: spec}, &resource.Catalog{}, func(joblog.Entry) {}, nil)
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
	set := openActions(t, velerov1.BackupSpec{})
	require.Equal(t, []string{"velero.io/pod", "velero.io/pv", "velero.io/service-account"}, actionNames(set.Items))
	require.Empty(t, set.Blocks, "everything that belongs together is selected anyway")
	require.Empty(t, set.Warnings)
	require.True(t, set.IsProcessCrash(&pluginhost.Error{Err: pluginhost.ErrCrashed}))
	require.True(t, set.IsNotSent(fmt.Errorf("x: %w", &pluginhost.Error{Err: pluginhost.ErrStart})))
	require.False(t, set.IsNotSent(&pluginhost.Error{Err: pluginhost.ErrCrashed, Sent: true}))
	require.False(t, set.IsNotSent(pluginhost.ErrStart), "an action without a process may have begun something")

	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for _, spec := range []velerov1.BackupSpec{{LabelSelector: labels}, {OrLabelSelectors: []*metav1.LabelSelector{labels}}} {
		require.Len(t, openActions(t, spec).Blocks, 3)
	}
}

// What built-in actions name is among what is remembered for them. The volume of a claim comes with
// it anyway.
func TestBuiltInActionsAskForWhatTheySay(t *testing.T) {
	set := openActions(t, velerov1.BackupSpec{})
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
