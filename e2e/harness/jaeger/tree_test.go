package jaeger

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATreeShowsParentsFailuresLinksAndWhatWasLost(t *testing.T) {
	const text = `{"traceID":"t","processes":{"p":{"serviceName":"a"},"q":{"serviceName":"b"}},"spans":[
		{"spanID":"3","operationName":"late","processID":"q","startTime":9,"references":[{"refType":"CHILD_OF","traceID":"t","spanID":"1"}],"tags":[{"key":"error","value":true}]},
		{"spanID":"2","operationName":"early","processID":"q","startTime":5,"references":[{"refType":"CHILD_OF","traceID":"t","spanID":"1"},{"refType":"FOLLOWS_FROM","traceID":"t","spanID":"gone"}]},
		{"spanID":"1","operationName":"root","processID":"p","startTime":1},
		{"spanID":"4","operationName":"orphan","processID":"q","startTime":2,"references":[{"refType":"CHILD_OF","traceID":"t","spanID":"gone"}]},
		{"spanID":"5","operationName":"deep","processID":"q","startTime":6,"references":[{"refType":"CHILD_OF","traceID":"t","spanID":"2"},{"refType":"FOLLOWS_FROM","traceID":"other","spanID":"x"}],"tags":[{"key":"error","value":false}]}]}`
	var trace Trace
	require.NoError(t, json.Unmarshal([]byte(text), &trace))
	require.Equal(t, `root [a]
  early [b] after another attempt
    deep [b]
  late [b] failed
(a span that was lost)
  orphan [b]
`, trace.Tree())
}
