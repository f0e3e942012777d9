package kube_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func newBackup(name string) *velerov1.Backup {
	return &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}}
}

func fakeClient(objs ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objs...).Build()
}

func TestUpdateWritesTheDifference(t *testing.T) {
	stored := newBackup("b")
	stored.Annotations = map[string]string{"keep": "1", "drop": "1"}
	var sent []byte
	c := interceptor.NewClient(fakeClient(stored), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			require.Equal(t, types.MergePatchType, p.Type())
			var err error
			sent, err = p.Data(obj)
			require.NoError(t, err)
			return w.Patch(ctx, obj, p, opts...)
		},
	})
	obj := newBackup("b")
	err := kube.Update(t.Context(), c, c, obj, func(b *velerov1.Backup) error {
		delete(b.Annotations, "drop")
		b.Status.Phase = velerov1.BackupPhaseQueued
		return nil
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"annotations":{"drop":null},"resourceVersion":"999"},"status":{"phase":"Queued"}}`, string(sent))
	require.Equal(t, velerov1.BackupPhaseQueued, obj.Status.Phase)
	require.Equal(t, "1000", obj.ResourceVersion, "obj holds the newest state")

	read := newBackup("b")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(read), read))
	require.Equal(t, map[string]string{"keep": "1"}, read.Annotations)
}

func TestUpdateRereadsAfterAConflict(t *testing.T) {
	base := fakeClient(newBackup("b"))
	first := true
	c := interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if first { // another writer comes between the read and the write
				first = false
				other := newBackup("b")
				require.NoError(t, w.Get(ctx, client.ObjectKeyFromObject(other), other))
				other.Status.Phase = velerov1.BackupPhaseInProgress
				require.NoError(t, w.Update(ctx, other))
			}
			return w.Patch(ctx, obj, p, opts...)
		},
	})
	var seen []velerov1.BackupPhase
	obj := newBackup("b")
	err := kube.Update(t.Context(), c, c, obj, func(b *velerov1.Backup) error {
		seen = append(seen, b.Status.Phase)
		b.Status.Errors++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []velerov1.BackupPhase{"", velerov1.BackupPhaseInProgress}, seen)
	require.Equal(t, 1, obj.Status.Errors)
	require.Equal(t, velerov1.BackupPhaseInProgress, obj.Status.Phase)
}

func TestUpdateLosesNoIncrement(t *testing.T) {
	c := fakeClient(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "n"}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "n"}}
				err := kube.Update(t.Context(), c, c, cm, func(cm *corev1.ConfigMap) error {
					if cm.Data == nil {
						cm.Data = map[string]string{}
					}
					cm.Data["n"] += "."
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: "n"}, cm))
	require.Len(t, cm.Data["n"], 20)
}

func TestUpdateStopsWithoutWriting(t *testing.T) {
	refused := errors.New("refused")
	stored := newBackup("b")
	stored.Status.Phase = velerov1.BackupPhaseCompleted
	c := interceptor.NewClient(fakeClient(stored), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			t.Error("nothing must be written")
			return nil
		},
	})
	cases := map[string]struct {
		mutate error
		want   error
	}{
		"skip":      {mutate: kube.ErrSkip},
		"error":     {mutate: refused, want: refused},
		"no change": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := newBackup("b")
			err := kube.Update(t.Context(), c, c, obj, func(b *velerov1.Backup) error {
				if tc.mutate != nil {
					b.Status.Phase = velerov1.BackupPhaseFailed // discarded
				}
				return tc.mutate
			})
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, velerov1.BackupPhaseCompleted, obj.Status.Phase, "as read")
		})
	}
}

func TestUpdateNoticesReplacementAndAbsence(t *testing.T) {
	c := fakeClient(newBackup("b"))
	old := newBackup("b")
	old.UID = "another"
	never := func(*velerov1.Backup) error { t.Error("mutate must not run"); return nil }
	require.ErrorIs(t, kube.Update(t.Context(), c, c, old, never), kube.ErrReplaced)
	require.True(t, apierrors.IsNotFound(kube.Update(t.Context(), c, c, newBackup("gone"), never)))
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := interceptor.NewClient(fakeClient(newBackup("b")), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			cancel()
			return apierrors.NewConflict(schema.GroupResource{Resource: "backups"}, "b", errors.New("always"))
		},
	})
	err := kube.Update(ctx, c, c, newBackup("b"), func(b *velerov1.Backup) error { b.Status.Errors = 1; return nil })
	require.ErrorIs(t, err, context.Canceled)
}
