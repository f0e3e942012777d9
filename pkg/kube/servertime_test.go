package kube_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestTheTimeIsBoundedByTheServers(t *testing.T) {
	actual := time.Date(2026, 5, 6, 7, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct{ ahead, want time.Duration }{
		"right":              {0, 0},
		"slow":               {-time.Hour, -time.Hour},
		"fast":               {time.Hour, 0},
		"fast by one second": {time.Second, time.Second}, // as precise as the header
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", actual.Format(http.TimeFormat))
			}))
			defer server.Close()
			own := clocktesting.NewFakePassiveClock(actual.Add(tt.ahead))
			c := kube.NewServerClock(own)
			require.Equal(t, own.Now(), c.Now(), "nothing is known of the server yet")
			askServer(t, c, server.URL)
			require.Equal(t, actual.Add(tt.want), c.Now())
			own.SetTime(own.Now().Add(time.Minute))
			require.Equal(t, actual.Add(tt.want+time.Minute), c.Now(), "time goes on between answers")
		})
	}
}

// An answer without a date, as a proxy may give, changes nothing.
func TestAnAnswerWithoutADate(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	defer server.Close()
	own := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	c := kube.NewServerClock(own)
	askServer(t, c, server.URL)
	require.Equal(t, own.Now(), c.Now())
}

func askServer(t *testing.T, c *kube.ServerClock, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := c.Wrap(http.DefaultTransport).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // as documented
}
