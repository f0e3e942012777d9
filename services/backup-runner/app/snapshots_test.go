package app

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// With EnableCSI volumes of CSI drivers are looked at, in backups without a location too.
func TestEnableCSIReachesSnapshots(t *testing.T) {
	for _, features := range [][]string{nil, {service.FeatureCSI}} {
		base := service.Base{Options: service.Defaults(Name, Ports), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
		base.Options.Features = features
		host, err := pluginhost.NewForService(t.Context(), base, service.NewConfig[pluginhost.Flags](), nil)
		require.NoError(t, err)
		taker := (&snapshotSource{host: host, base: base, csi: newCSI(base, csisnapshot.API{}), workDir: t.TempDir()}).openTaker(t.Context(), &velerov1.Backup{}, func(joblog.Entry) {})
		defer taker.Close()
		enabled := len(features) > 0
		require.Equal(t, enabled, taker.CSI != nil)
		looked := taker.Wanted()
		require.Equal(t, enabled, looked)
	}
}
