package alerts_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// every is the time between two samples of a series, and between two evaluations.
const every = time.Minute

// sample is a value of a series.
type sample struct {
	at    int64 // Unix milliseconds
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// history are series that were scraped from time 0 on.
type history []storage.Series

// parse reads series in the notation of Prometheus' unit tests, one a line, "up 0 1+1x3 _ 7", and
// returns them with the time of the last sample of the
// first.
func parse(t *testing.T, p parser.Parser, text string) (history, time.Duration) {
	t.Helper()
	var h history
	last := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		lset, values, err := p.ParseSeriesDesc(strings.TrimSpace(line))
		require.NoError(t, err, line)
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{at: (time.Duration(i) * every).Milliseconds(), value: v.Value})
			}
		}
		if len(h) == 0 {
			last = len(values) - 1
		}
		h = append(h, storage.NewListSeries(lset, samples))
	}
	return h, time.Duration(last) * every
}

// Querier implements storage.Queryable.
func (h history) Querier(int64, int64) (storage.Querier, error) { return h, nil }

// Select implements storage.Querier.
func (h history) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &found{at: -1}
	for _, s := range h {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			set.series = append(set.series, s)
		}
	}
	slices.SortFunc(set.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

// LabelValues implements storage.Querier; no expression needs it.
func (history) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier; no expression needs it.
func (history) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (history) Close() error { return nil }

// found is what a selection found.
type found struct {
	series []storage.Series
	at     int
}

func (f *found) Next() bool                      { f.at++; return f.at < len(f.series) }
func (f *found) At() storage.Series              { return f.series[f.at] }
func (*found) Err() error                        { return nil }
func (*found) Warnings() annotations.Annotations { return nil }
