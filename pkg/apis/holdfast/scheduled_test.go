package holdfast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestNameIsTheSlotInUTC(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	require.Equal(t, "daily-20260706003000", holdfast.ScheduledBackupName("daily", time.Date(2026, 7, 6, 2, 30, 0, 0, berlin)))
}

func newSchedule() *velerov1.Schedule {
	return &velerov1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "daily", UID: "u", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "x"}},
		Spec:       velerov1.ScheduleSpec{Template: velerov1.BackupSpec{IncludedNamespaces: []string{"shop"}}},
	}
}

func TestBackup(t *testing.T) {
	s := newSchedule()
	b := holdfast.ScheduledBackup(s, "n")
	require.Equal(t, "velero/n", b.Namespace+"/"+b.Name)
	require.Equal(t, []string{"shop"}, b.Spec.IncludedNamespaces)
	require.Equal(t, map[string]string{"team": "a", "velero.io/schedule-name": "daily"}, b.Labels)
	require.Equal(t, map[string]string{"note": "x"}, b.Annotations)
	require.Empty(t, b.OwnerReferences)

	b.Labels["k"], b.Annotations["k"], b.Spec.IncludedNamespaces[0] = "v", "v", "other"
	require.Equal(t, newSchedule(), s, "the Schedule shares nothing with its Backup")
}

func TestLabelsOfTheTemplateReplaceThoseOfTheSchedule(t *testing.T) {
	s := newSchedule()
	s.Spec.Template.Metadata.Labels = map[string]string{"tier": "gold", "app.kubernetes.io/instance": "meant", "velero.io/schedule-name": "other"}
	require.Equal(t, map[string]string{"tier": "gold", "app.kubernetes.io/instance": "meant", "velero.io/schedule-name": "daily"}, holdfast.ScheduledBackup(s, "n").Labels)
}

func TestTheScheduleOwnsItsBackupsOnlyWhenAsked(t *testing.T) {
	s := newSchedule()
	s.Spec.UseOwnerReferencesInBackup = ptr.To(false)
	require.Empty(t, holdfast.ScheduledBackup(s, "n").OwnerReferences)
	s.Spec.UseOwnerReferencesInBackup = ptr.To(true)
	require.Equal(t, []metav1.OwnerReference{{
		APIVersion: "velero.io/v1", Kind: "Schedule", Name: "daily", UID: "u", Controller: ptr.To(true),
	}}, holdfast.ScheduledBackup(s, "n").OwnerReferences)
}

func TestKeysOfDeploymentToolsAreNotCopied(t *testing.T) {
	s := newSchedule()
	s.Labels = map[string]string{
		"argocd.argoproj.io/instance": "x", "app.kubernetes.io/instance": "x", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "x",
		"kustomize.toolkit.fluxcd.io/name": "x", "helm.toolkit.fluxcd.io/namespace": "x", "applyset.kubernetes.io/part-of": "x",
		"app.kubernetes.io/name": "kept", "nothelm.sh/chart": "kept", "plain": "kept",
	}
	s.Annotations = map[string]string{
		"argocd.argoproj.io/tracking-id": "x", "meta.helm.sh/release-name": "x", "helm.sh/hook": "x", "fluxcd.io/sync-checksum": "x",
		"kustomize.toolkit.fluxcd.io/prune": "x", "reconcile.fluxcd.io/requestedAt": "x", "kubectl.kubernetes.io/last-applied-configuration": "x",
		"holdfast.io/spread-window": "1h", "holdfast.io/pending-slot": "x", "holdfast.io/claim": "x",
		"holdfast.io/priority": "kept", "velero.io/csi-volumesnapshot-class_disk": "kept", "argoproj.io": "kept",
	}
	b := holdfast.ScheduledBackup(s, "n")
	require.Equal(t, map[string]string{
		"app.kubernetes.io/name": "kept", "nothelm.sh/chart": "kept", "plain": "kept", "velero.io/schedule-name": "daily",
	}, b.Labels)
	require.Equal(t, map[string]string{
		"holdfast.io/priority": "kept", "velero.io/csi-volumesnapshot-class_disk": "kept", "argoproj.io": "kept",
	}, b.Annotations)
}
