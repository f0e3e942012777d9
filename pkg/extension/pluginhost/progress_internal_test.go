package pluginhost

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

func TestTheProgressOfVelerosKindsIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said *velero.OperationProgress
		want action.Progress
	}{
		"nothing":           {&velero.OperationProgress{}, action.Progress{}},
		"success":           {&velero.OperationProgress{Completed: true}, action.Progress{Done: true}},
		"failure":           {&velero.OperationProgress{Completed: true, Err: " full\n"}, action.Progress{Done: true, Err: "full"}},
		"a blank error":     {&velero.OperationProgress{Completed: true, Err: "\n"}, action.Progress{Done: true, Err: unexplained}},
		"an error too soon": {&velero.OperationProgress{Err: "slow"}, action.Progress{}},
		"numbers":           {&velero.OperationProgress{NCompleted: -1, NTotal: -2}, action.Progress{}},
		"more than all":     {&velero.OperationProgress{NCompleted: 3, NTotal: 2}, action.Progress{Completed: 3, Total: 2}},
		"times":             {&velero.OperationProgress{Started: &timestamppb.Timestamp{Seconds: 1 << 62}, Updated: timestamppb.New(time.Unix(7, 0))}, action.Progress{Updated: time.Unix(7, 0).UTC()}},
		"texts":             {&velero.OperationProgress{OperationUnits: "By\x00tes", Description: "a\tb\u009b"}, action.Progress{Units: "By tes", Description: "a b"}},
	} {
		got, err := progressOf(tt.said)
		require.NoError(t, err, name)
		require.Equal(t, tt.want, got, name)
	}
	_, err := progressOf(nil)
	require.ErrorIs(t, err, ErrMalformed)
}

func TestTheProgressOfOurKindsIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said *pluginv1.OperationProgress
		want action.Progress
	}{
		"pending":           {&pluginv1.OperationProgress{State: 1}, action.Progress{}},
		"running":           {&pluginv1.OperationProgress{State: 2, Done: 1, Total: 2, Unit: "Bytes", Description: "d"}, action.Progress{Completed: 1, Total: 2, Units: "Bytes", Description: "d"}},
		"succeeded":         {&pluginv1.OperationProgress{State: 3, Error: "no matter"}, action.Progress{Done: true}},
		"failed":            {&pluginv1.OperationProgress{State: 4, Error: "full"}, action.Progress{Done: true, Err: "full"}},
		"failed, no reason": {&pluginv1.OperationProgress{State: 4, Error: " "}, action.Progress{Done: true, Err: unexplained}},
		"cancelled":         {&pluginv1.OperationProgress{State: 5}, action.Progress{Done: true, Err: cancelled}},
		"numbers":           {&pluginv1.OperationProgress{State: 2, Done: -1, Total: -1}, action.Progress{}},
		"times":             {&pluginv1.OperationProgress{State: 2, Started: timestamppb.New(time.Unix(7, 0)), Updated: &timestamppb.Timestamp{Nanos: -1}}, action.Progress{Started: time.Unix(7, 0).UTC()}},
	} {
		got, err := ownProgressOf(tt.said)
		require.NoError(t, err, name)
		require.Equal(t, tt.want, got, name)
	}
	for _, said := range []*pluginv1.OperationProgress{nil, {}, {State: 6}, {State: -1}} {
		_, err := ownProgressOf(said)
		require.ErrorIs(t, err, ErrMalformed)
	}
}

func FuzzProgress(f *testing.F) {
	for _, seed := range []proto.Message{
		&velero.OperationProgress{Completed: true, Err: "\x1b[0m", NTotal: -1, Description: strings.Repeat("é", maxRemoteMessage)},
		&pluginv1.OperationProgress{State: 4, Error: "\r\n", Done: -1, Started: &timestamppb.Timestamp{Seconds: -1 << 62}},
	} {
		wire, err := proto.Marshal(seed)
		require.NoError(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var theirs velero.OperationProgress
		if proto.Unmarshal(wire, &theirs) == nil {
			p, err := progressOf(&theirs)
			require.NoError(t, err)
			require.Equal(t, theirs.GetCompleted() && theirs.GetErr() != "", p.Err != "")
			requireSoundProgress(t, &p)
		}
		var ours pluginv1.OperationProgress
		if proto.Unmarshal(wire, &ours) == nil {
			if p, err := ownProgressOf(&ours); err == nil {
				require.Equal(t, ours.GetState() >= 4, p.Err != "")
				requireSoundProgress(t, &p)
			}
		}
	})
}

func requireSoundProgress(t *testing.T, p *action.Progress) {
	t.Helper()
	require.GreaterOrEqual(t, p.Completed, int64(0))
	require.GreaterOrEqual(t, p.Total, int64(0))
	require.True(t, p.Done || p.Err == "")
	for _, text := range []string{p.Err, p.Units, p.Description} {
		require.LessOrEqual(t, len(text), maxRemoteMessage+len("…"))
		require.NotContains(t, strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return '!'
			}
			return 'x'
		}, text), "!")
	}
	for _, at := range []time.Time{p.Started, p.Updated} {
		_, err := at.MarshalJSON()
		require.NoError(t, err)
	}
}
