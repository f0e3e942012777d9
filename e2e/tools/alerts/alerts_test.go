package alerts_test

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// file has the rules that the chart puts into a PrometheusRule.
const file = "../../../deploy/helm/holdfast/files/alerts.yaml"

// bed evaluates the rules.
type bed struct {
	parser parser.Parser
	engine *promql.Engine
	rules  map[string]rulefmt.Rule
}

func newBed(t *testing.T) *bed {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	b := &bed{parser: p, rules: map[string]rulefmt.Rule{}, engine: promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: p,
	})}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, b.rules, rule.Alert)
			b.rules[rule.Alert] = rule
		}
	}
	return b
}

// fires evaluates a rule each minute until the last sample of the first series, as Prometheus does, and returns the
// labels of the alerts that fire then.
func (b *bed) fires(t *testing.T, rule rulefmt.Rule, series string) []string {
	t.Helper()
	h, end := parse(t, b.parser, series)
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= end; now += every {
		query, err := b.engine.NewInstantQuery(t.Context(), h, nil, rule.Expr, time.UnixMilli(now.Milliseconds()))
		require.NoError(t, err)
		result := query.Exec(t.Context())
		require.NoError(t, result.Err)
		vector, err := result.Vector()
		require.NoError(t, err)
		active := map[string]time.Duration{}
		for _, s := range vector {
			key := s.Metric.String()
			active[key] = now
			if begun, ok := since[key]; ok {
				active[key] = begun
			}
		}
		query.Close()
		since = active
	}
	var firing []string
	for key, begun := range since {
		if end-begun >= time.Duration(rule.For) {
			firing = append(firing, key)
		}
	}
	slices.Sort(firing)
	return firing
}

// Each alert fires where it has to, with the labels that say what it is about, and is silent where
// nothing is wrong.
func TestAlerts(t *testing.T) {
	b := newBed(t)
	for alert := range b.rules {
		require.NotEmpty(t, cases[alert].fires, "%s has no test that makes it fire", alert)
		require.NotEmpty(t, cases[alert].silent, "%s has no test that keeps it silent", alert)
	}
	for alert, c := range cases {
		rule, ok := b.rules[alert]
		require.True(t, ok, alert)
		for name, f := range c.fires {
			require.Equal(t, f.labels, b.fires(t, rule, f.series), "%s: %s", alert, name)
		}
		for name, series := range c.silent {
			require.Empty(t, b.fires(t, rule, series), "%s: %s", alert, name)
		}
	}
}
