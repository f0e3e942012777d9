package pluginhost

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// Plugins refuse keys of a configuration that they do not know, and many do not know
// "credentialsFile": with the Secret that `velero install` leaves, no location of such a plugin
// opens. Velero gives that Secret's file to every plugin in its environment.
func TestTheInstallationsCredentialsAreNoPartOfAConfiguration(t *testing.T) {
	h := &Host{backoffs: newBackoffs(), cfg: Config{Clock: clock.RealClock{}, Environ: []string{"PATH=/bin", "AWS_SHARED_CREDENTIALS_FILE=/mounted"}}}
	h.known.Store(&catalog{plugins: []Registration{{Kind: KindObjectStore, Name: "velero.io/x", Path: "/x"}}})
	s := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	defer s.Close()
	type made struct {
		config map[string]string
		env    []string
	}
	open := func(config map[string]string) *made {
		m, err := openProvider(s, KindObjectStore, "x", config, func(p plugin, config map[string]string) *made { return &made{config, p.worker.spec.env} })
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

// The file with a location's credentials has another name in every job. Known by it, a plugin that
// dies is as good as new in the next job, and what is remembered of each stays.
func TestDeathsAreCountedWhateverTheNameOfTheCredentials(t *testing.T) {
	h := &Host{backoffs: newBackoffs(), cfg: Config{Clock: clock.RealClock{}}}
	h.known.Store(&catalog{plugins: []Registration{{Kind: KindObjectStore, Name: "velero.io/x", Path: "/x"}}})
	for _, key := range []string{InstalledCredentials, credentialsFile} {
		for _, file := range []string{"/work/1", "/work/2"} {
			s := h.Open(t.Context(), slog.New(slog.DiscardHandler))
			defer s.Close()
			for _, other := range []string{file, "/work/other"} {
				w, err := openProvider(s, KindObjectStore, "x", map[string]string{"region": "r", key: other}, func(p plugin, _ map[string]string) *worker { return p.worker })
				require.NoError(t, err)
				require.Equal(t, backoffKey{`ObjectStore velero.io/x map["region":"r"]`, who{}}, w.backoffKey(who{}))
			}
			require.Len(t, s.workers, 2, "another Secret has processes of its own")
		}
	}
}
