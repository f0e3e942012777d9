package pluginhost

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// Plugins refuse keys of a configuration that they do not know, and many do not know "credentialsFile": with the Secret that `velero install`
// leaves, no location of such a plugin opens. Velero gives that Secret's file to every plugin in its environment.
func TestTheInstallationsCredentialsAreNoPartOfAConfiguration(t *testing.T) {
	h := &Host{tolls: newTolls(), cfg: Config{Clock: clock.RealClock{}, Environ: []string{"PATH=/bin", "AWS_SHARED_CREDENTIALS_FILE=/mounted"}}}
	h.known.Store(&catalog{plugins: []Registration{{Kind: KindObjectStore, Name: "velero.io/x", Path: "/x"}}})
	s := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	defer s.Close()
	type made struct {
		config map[string]string
		env    []string
	}
	open := func(config map[string]string) *made {
		m, err := provide(s, KindObjectStore, "x", config, func(p plugin, config map[string]string) *made { return &made{config, p.worker.spec.env} })
		require.NoError(t, err)
		return m
	}
	given := map[string]string{"region": "r", InstalledCredentials: "/work/file"}
	got := open(given)
	require.Equal(t, map[string]string{"region": "r"}, got.config)
	require.Equal(t, []string{
		"PATH=/bin", "AWS_SHARED_CREDENTIALS_FILE=/mounted", // what the service was given stays
		"GOOGLE_APPLICATION_CREDENTIALS=/work/file", "AZURE_CREDENTIALS_FILE=/work/file", "ALIBABA_CLOUD_CREDENTIALS_FILE=/work/file",
	}, got.env)
	require.Same(t, got, open(given))
	require.Len(t, given, 2, "the caller's")
	require.Equal(t, h.cfg.Environ, open(map[string]string{"region": "r"}).env)
}
