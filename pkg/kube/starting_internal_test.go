package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// scriptedServer answers requests one after the other with these codes; 0 is a connection that fails. The last one stays.
type scriptedServer struct {
	codes  []int
	bodies []string
}

func (s *scriptedServer) RoundTrip(r *http.Request) (*http.Response, error) {
	code := s.codes[0]
	if len(s.codes) > 1 {
		s.codes = s.codes[1:]
	}
	if code == 0 {
		return nil, errors.New("connection refused")
	}
	sent := ""
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		sent = string(raw)
	}
	s.bodies = append(s.bodies, sent)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// TestAnAPIServerThatStartsMayForbid: a server that is not ready has no roles yet, and refuses what it allows a second later.
func TestAnAPIServerThatStartsMayForbid(t *testing.T) {
	for name, c := range map[string]struct {
		codes []int
		want  int
		sent  int           // requests that were answered
		took  time.Duration // at least
	}{
		"it was reachable all the time":   {[]int{403, 200}, 403, 1, 0},
		"it starts":                       {[]int{0, 403, 403, 200}, 200, 3, 2 * startingPause},
		"it starts, and has no such role": {[]int{0, 403}, 403, 61, startingTime},
		"it answers otherwise":            {[]int{0, 404, 403}, 404, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scriptedServer{codes: c.codes}
				outage := &apiServerOutage{clock: clock.RealClock{}}
				seen, served := outage.wrapTransport(server), outage.wrapTransport(server) // of two clients
				send := func(by http.RoundTripper) (*http.Response, error) {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://cluster/api", strings.NewReader("object"))
					require.NoError(t, err)
					return by.RoundTrip(r)
				}
				if c.codes[0] == 0 {
					_, err := send(seen)
					require.ErrorContains(t, err, "refused")
				}
				begun := time.Now()
				answer, err := send(served)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, c.want, answer.StatusCode)
				require.GreaterOrEqual(t, time.Since(begun), c.took)
				require.Len(t, server.bodies, c.sent)
				for _, body := range server.bodies {
					require.Equal(t, "object", body)
				}
			})
		})
	}
}

func TestAForbiddenRequestIsNotRepeatedAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := &apiServerOutage{clock: clock.RealClock{}}
		outage.seen.Store(time.Now().UnixNano())
		ctx, cancel := context.WithTimeout(t.Context(), startingPause/2)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cluster/api", nil)
		require.NoError(t, err)
		answer, err := outage.wrapTransport(&scriptedServer{codes: []int{403}}).RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusForbidden, answer.StatusCode)
	})
}
