package settings_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/settings"
)

type voice []string

func (v *voice) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	*v = append(*v, reason+": "+fmt.Sprintf(note, args...))
}

func TestLimits(t *testing.T) {
	heard := &voice{}
	c := fake.NewClientBuilder().Build()
	s := settings.New(settings.Config{
		Reader: c, Namespace: "velero", Flags: ledger.Limits{Backups: 3, Restores: 2}, Events: heard, Log: slog.New(slog.DiscardHandler),
	})
	is := func(backups, restores int) {
		t.Helper()
		for range 2 { // asking again changes nothing
			found, err := s.Limits(t.Context())
			require.NoError(t, err)
			require.Equal(t, ledger.Limits{Backups: backups, Restores: restores}, found)
		}
	}
	is(3, 2) // absent: the flags

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: settings.Name}}
	require.NoError(t, c.Create(t.Context(), cm))
	set := func(data map[string]string) {
		t.Helper()
		cm.Data = data
		require.NoError(t, c.Update(t.Context(), cm))
	}
	is(3, 2)
	set(map[string]string{"concurrent-backups": "7"})
	is(7, 2)
	set(map[string]string{"concurrent-backups": "7", "concurrent-restores": "4"})
	is(7, 4)
	require.Empty(t, *heard)

	set(map[string]string{"concurrent-backups": "many", "concurrent-restores": "0"})
	is(7, 4) // the last good ones
	require.Equal(t, voice{
		`UnusableSetting: data[concurrent-backups]: "many" is not a whole number from 1 on; 7 stays`,
		`UnusableSetting: data[concurrent-restores]: "0" is not a whole number from 1 on; 4 stays`,
	}, *heard)
	set(map[string]string{"concurrent-backups": "-1", "concurrent-restores": "5"})
	is(7, 5)
	require.Len(t, *heard, 3, "another bad value is news")
	set(map[string]string{"concurrent-backup": "9"})
	is(3, 2) // absent keys are the flags again
	require.Equal(t, `UnusableSetting: data[concurrent-backup]: "9" is no setting`, (*heard)[3])
	set(map[string]string{"concurrent-backups": "99999999999999999999"})
	is(3, 2) // nothing good was ever read since
	require.NoError(t, c.Delete(t.Context(), cm))
	is(3, 2)
	require.Len(t, *heard, 5)
}

func TestAnOutageIsNoSetting(t *testing.T) {
	down := errors.New("injected")
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()
	_, err := settings.New(settings.Config{Reader: c, Namespace: "velero", Log: slog.New(slog.DiscardHandler)}).Limits(t.Context())
	require.ErrorIs(t, err, down)
}
