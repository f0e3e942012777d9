package plugintest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns"},"spec":{"big":9007199254740993,"nodeName":"n"}}`

// constructorOf returns a constructor of p.
func constructorOf[T any](p T) func(plugin.Env) (T, error) {
	return func(plugin.Env) (T, error) { return p, nil }
}

// backupWith serves one backup item action that touches pods and services.
func backupWith(t *testing.T, selector plugin.Selector, run func(context.Context, *plugin.BackupInput) (*plugin.BackupOutput, error)) *plugintest.Process {
	t.Helper()
	action := backupFunc{funcs: funcs{selector: selector}, run: run}
	return plugintest.Start(t, (&plugin.Registry{}).BackupItemAction("a.io/x", []string{"pods", "services"}, constructorOf[plugin.BackupItemAction](action)))
}

func TestBackupItemActionChangesTheObject(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		in.Item.SetLabels(map[string]string{"backup": in.Backup.Name(), "uid": in.Backup.UID()})
		config := plugin.ResourceIdentifier{Resource: "configmaps", Namespace: in.Item.GetNamespace(), Name: "c"}
		return plugin.NewBackupOutput(in.Item).WithAdditionalItems(config).WithMustInclude(), nil
	})
	out, err := process.BackupItemAction("a.io/x").Execute(t.Context(), &plugin.BackupInput{Item: plugintest.Object(t, pod), Backup: plugintest.Job(t, "nightly")})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"backup": "nightly", "uid": "uid-of-nightly"}, out.Item.GetLabels())
	require.Equal(t, map[string]string{"backup.velero.io/must-include-additional-items": "true"}, out.Item.GetAnnotations())
	require.True(t, out.MustInclude)
	require.False(t, out.SkipBackup)
	require.Equal(t, []plugin.ResourceIdentifier{{Resource: "configmaps", Namespace: "ns", Name: "c"}}, out.AdditionalItems)
	require.Equal(t, int64(9007199254740993), out.Item.Object["spec"].(map[string]any)["big"])
}

func TestBackupItemActionLeavesTheObjectOut(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		return plugin.NewBackupOutput(nil).WithoutBackup(), nil
	})
	out, err := process.BackupItemAction("a.io/x").Execute(t.Context(), &plugin.BackupInput{Item: plugintest.Object(t, pod), Backup: plugintest.Job(t, "b")})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"velero.io/skip-from-backup": "true"}, out.Item.GetAnnotations())
	require.True(t, out.SkipBackup)
	require.False(t, out.MustInclude)
	require.Equal(t, "a", out.Item.GetName())
}

// A server cannot do without the object, so an action that changes nothing returns the very bytes.
func TestNothingToChangeReturnsTheBytesGiven(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(context.Context, *plugin.BackupInput) (*plugin.BackupOutput, error) { return nil, nil })
	raw := []byte(`{ "kind":"Pod","x":1.50,"h":"<&>" }`)
	resp, err := velero.NewBackupItemActionClient(process.Conn()).Execute(t.Context(), &velero.ExecuteRequest{Plugin: "a.io/x", Item: raw, Backup: []byte(`{}`)})
	require.NoError(t, err)
	require.Equal(t, string(raw), string(resp.GetItem()))
}

func TestExpressionDecidesWithoutTheAction(t *testing.T) {
	var calls atomic.Int32
	selector := plugin.Selector{Expression: `has(item.spec.nodeName) && item.spec.nodeName == "n"`}
	process := backupWith(t, selector, func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		calls.Add(1)
		return plugin.NewBackupOutput(in.Item), nil
	})
	action := process.BackupItemAction("a.io/x")
	for _, tc := range []struct {
		object string
		want   int32
	}{{pod, 1}, {`{"kind":"Pod","metadata":{"name":"b"},"spec":{"nodeName":"m"}}`, 1}, {`{"kind":"Pod","spec":{}}`, 1}} {
		out, err := action.Execute(t.Context(), &plugin.BackupInput{Item: plugintest.Object(t, tc.object), Backup: plugintest.Job(t, "b")})
		require.NoError(t, err)
		require.Equal(t, plugintest.Object(t, tc.object).Object, out.Item.Object)
		require.Equal(t, tc.want, calls.Load())
	}
	// Where it cannot be evaluated, the object has an error.
	_, err := action.Execute(t.Context(), &plugin.BackupInput{Item: plugintest.Object(t, `{"kind":"Pod"}`), Backup: plugintest.Job(t, "b")})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "expression")
}

func TestSelectorIsNarrowedToWhatTheActionTouches(t *testing.T) {
	none := func(context.Context, *plugin.BackupInput) (*plugin.BackupOutput, error) { return nil, nil }
	selector := plugin.Selector{
		IncludedNamespaces: []string{"a"}, ExcludedNamespaces: []string{"b"}, ExcludedResources: []string{"services"},
		LabelSelector: "app in (x, y)", Expression: "true",
	}
	process := backupWith(t, selector, none)
	got, err := process.BackupItemAction("a.io/x").AppliesTo(t.Context())
	require.NoError(t, err)
	selector.IncludedResources = []string{"pods", "services"}
	require.Equal(t, selector, got)

	resp, err := velero.NewBackupItemActionClient(process.Conn()).AppliesTo(t.Context(), &velero.BackupItemActionAppliesToRequest{Plugin: "a.io/x"})
	require.NoError(t, err)
	require.Equal(t, []string{"pods", "services"}, resp.GetResourceSelector().GetIncludedResources())
	require.Equal(t, "app in (x, y)", resp.GetResourceSelector().GetSelector())
}

// The answers are wrong from the second on, which Start does not see.
func TestAppliesToNamesWhatIsWrong(t *testing.T) {
	for want, selector := range map[string]plugin.Selector{
		`IncludedResources: "secrets"`: {IncludedResources: []string{"pods", "secrets"}},
		"LabelSelector:":               {LabelSelector: "=="},
		"yields string, want bool":     {Expression: `"x"`},
	} {
		var asked atomic.Int32
		process := plugintest.Start(t, (&plugin.Registry{}).DeleteItemAction("a.io/x", []string{"pods"}, constructorOf[plugin.DeleteItemAction](changing{&asked, selector})))
		_, err := process.DeleteItemAction("a.io/x").AppliesTo(t.Context())
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "a.io/x")
	}
}

type changing struct {
	asked    *atomic.Int32
	selector plugin.Selector
}

func (c changing) AppliesTo(context.Context) (plugin.Selector, error) {
	if c.asked.Add(1) == 1 {
		return plugin.Selector{}, nil
	}
	return c.selector, nil
}

func (changing) Execute(context.Context, *plugin.BackupInput) error { return nil }

func TestErrorsAndPanicsCostOneCall(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(ctx context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		switch in.Item.GetName() {
		case "plain":
			return nil, errors.New("the disk is on fire")
		case "status":
			return nil, fmt.Errorf("look: %w", status.Error(codes.Unavailable, "later"))
		case "panic":
			panic("boom")
		case "nothing":
			in.Item.Object = nil
			return plugin.NewBackupOutput(in.Item), nil
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return plugin.NewBackupOutput(in.Item), nil
	})
	action := process.BackupItemAction("a.io/x")
	execute := func(ctx context.Context, name string) error {
		_, err := action.Execute(ctx, &plugin.BackupInput{Item: plugintest.Object(t, `{"kind":"Pod","metadata":{"name":"`+name+`"}}`), Backup: plugintest.Job(t, "b")})
		return err
	}
	err := execute(t.Context(), "plain")
	require.Equal(t, codes.Unknown, status.Code(err))
	require.ErrorContains(t, err, "the disk is on fire")
	require.Equal(t, codes.Unavailable, status.Code(execute(t.Context(), "status")))
	require.Equal(t, codes.Internal, status.Code(execute(t.Context(), "nothing")))

	err = execute(t.Context(), "panic")
	require.Equal(t, codes.Aborted, status.Code(err))
	require.ErrorContains(t, err, "plugin panicked: boom")
	details := status.Convert(err).Details()
	require.Len(t, details, 1)
	frame := details[0].(*velero.Stack).GetFrames()[0]
	require.Contains(t, frame.GetFile(), "actions_test.go", "the stack begins where the plugin panicked, not in the runtime")

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(execute(ctx, "slow")))
	require.NoError(t, execute(t.Context(), "fine"))
}

func TestBadRequestsNameTheField(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		return plugin.NewBackupOutput(in.Item), nil
	})
	service := velero.NewBackupItemActionClient(process.Conn())
	for want, req := range map[string]*velero.ExecuteRequest{
		"item:":              {Plugin: "a.io/x", Item: []byte("\xff"), Backup: []byte(`{}`)},
		"item: want":         {Plugin: "a.io/x", Item: []byte(`null`), Backup: []byte(`{}`)},
		"backup:":            {Plugin: "a.io/x", Item: []byte(pod)},
		`is called "a.io/y"`: {Plugin: "a.io/y", Item: []byte(pod), Backup: []byte(`{}`)},
		`is called ""`:       {},
	} {
		_, err := service.Execute(t.Context(), req)
		require.Contains(t, []codes.Code{codes.InvalidArgument, codes.NotFound}, status.Code(err))
		require.ErrorContains(t, err, want)
	}
	// The version of asynchronous actions knows none of the others.
	_, err := velerov2.NewBackupItemActionClient(process.Conn()).AppliesTo(t.Context(), &velerov2.BackupItemActionAppliesToRequest{Plugin: "a.io/x"})
	require.Equal(t, codes.NotFound, status.Code(err))
}

// Velero's own servers take no more than 4 MiB; the largest object of an API server needs more with
// its Backup beside it.
func TestLargeObjectsPass(t *testing.T) {
	process := backupWith(t, plugin.Selector{}, func(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
		return plugin.NewBackupOutput(in.Item), nil
	})
	object := plugintest.Object(t, `{"kind":"Pod","data":"`+strings.Repeat("x", 8<<20)+`"}`)
	out, err := process.BackupItemAction("a.io/x").Execute(t.Context(), &plugin.BackupInput{Item: object, Backup: plugintest.Job(t, "b")})
	require.NoError(t, err)
	require.Len(t, out.Item.Object["data"], 8<<20)
}

func TestRestoreItemActionWaitsAndSkips(t *testing.T) {
	items := []plugin.ResourceIdentifier{{Resource: "services", Namespace: "ns", Name: "s"}}
	var asked [][]plugin.ResourceIdentifier
	action := restoreFunc{
		run: func(in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
			switch in.ItemFromBackup.GetName() {
			case "wait":
				return plugin.NewRestoreOutput(in.Item).WithAdditionalItems(items...).WithItemsWait(), nil
			case "briefly":
				return plugin.NewRestoreOutput(nil).WithItemsWaitTimeout(90 * time.Second), nil
			case "skip":
				return plugin.NewRestoreOutput(in.Item).WithoutRestore(), nil
			case "negative":
				return plugin.NewRestoreOutput(in.Item).WithItemsWaitTimeout(-time.Second), nil
			}
			return nil, nil
		},
		ready: func(restore *plugin.Job, items []plugin.ResourceIdentifier) (bool, error) {
			asked = append(asked, items)
			if restore.Name() == "broken" {
				return false, errors.New("cannot tell")
			}
			return len(asked) > 1, nil
		},
	}
	process := plugintest.Start(t, (&plugin.Registry{}).RestoreItemAction("a.io/x", []string{"*"}, constructorOf[plugin.RestoreItemAction](action)))
	client := process.RestoreItemAction("a.io/x")
	execute := func(name string) (*plugin.RestoreOutput, error) {
		return client.Execute(t.Context(), &plugin.RestoreInput{
			Item: plugintest.Object(t, pod), ItemFromBackup: plugintest.Object(t, `{"kind":"Pod","metadata":{"name":"`+name+`"}}`), Restore: plugintest.Job(t, "r"),
		})
	}
	object := plugintest.Object(t, pod)
	for name, want := range map[string]*plugin.RestoreOutput{
		"wait":    {Item: object, AdditionalItems: items, WaitForAdditionalItems: true},
		"briefly": {Item: object, WaitForAdditionalItems: true, AdditionalItemsReadyTimeout: 90 * time.Second},
		"skip":    {Item: object, SkipRestore: true},
		"none":    {Item: object},
	} {
		got, err := execute(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	_, err := execute("negative")
	require.ErrorContains(t, err, "AdditionalItemsReadyTimeout: -1s is negative")

	for _, want := range []bool{false, true} {
		ready, err := client.AreAdditionalItemsReady(t.Context(), plugintest.Job(t, "r"), items)
		require.NoError(t, err)
		require.Equal(t, want, ready)
	}
	require.Equal(t, [][]plugin.ResourceIdentifier{items, items}, asked)
	_, err = client.AreAdditionalItemsReady(t.Context(), plugintest.Job(t, "broken"), nil)
	require.ErrorContains(t, err, "cannot tell")
}

func TestEmbeddedDefaults(t *testing.T) {
	action := restoreFunc{run: func(*plugin.RestoreInput) (*plugin.RestoreOutput, error) { return nil, nil }}
	process := plugintest.Start(t, (&plugin.Registry{}).RestoreItemAction("a.io/x", []string{"pods"}, constructorOf[plugin.RestoreItemAction](action)))
	ready, err := process.RestoreItemAction("a.io/x").AreAdditionalItemsReady(t.Context(), plugintest.Job(t, "r"), nil)
	require.NoError(t, err)
	require.True(t, ready)
	selector, err := process.RestoreItemAction("a.io/x").AppliesTo(t.Context())
	require.NoError(t, err)
	require.Equal(t, plugin.Selector{IncludedResources: []string{"pods"}}, selector)
}

func TestDeleteAndBlockActions(t *testing.T) {
	claim := plugin.ResourceIdentifier{Resource: "persistentvolumeclaims", Namespace: "ns", Name: "data"}
	var deleted []string
	process := plugintest.Start(t, (&plugin.Registry{}).
		DeleteItemAction("a.io/x", []string{"pods"}, constructorOf[plugin.DeleteItemAction](deleteFunc{
			funcs: funcs{selector: plugin.Selector{Expression: `item.metadata.name != "other"`}},
			run: func(in *plugin.BackupInput) error {
				deleted = append(deleted, in.Backup.Name()+" "+in.Item.GetName())
				if in.Item.GetName() == "stuck" {
					return errors.New("snapshot is in use")
				}
				return nil
			},
		})).
		ItemBlockAction("a.io/x", []string{"pods"}, constructorOf[plugin.ItemBlockAction](blockFunc{run: func(*plugin.BackupInput) ([]plugin.ResourceIdentifier, error) {
			return []plugin.ResourceIdentifier{claim}, nil
		}})))
	input := func(name string) *plugin.BackupInput {
		return &plugin.BackupInput{Item: plugintest.Object(t, `{"kind":"Pod","metadata":{"name":"`+name+`"}}`), Backup: plugintest.Job(t, "b")}
	}
	require.NoError(t, process.DeleteItemAction("a.io/x").Execute(t.Context(), input("a")))
	require.NoError(t, process.DeleteItemAction("a.io/x").Execute(t.Context(), input("other")))
	require.ErrorContains(t, process.DeleteItemAction("a.io/x").Execute(t.Context(), input("stuck")), "snapshot is in use")
	require.Equal(t, []string{"b a", "b stuck"}, deleted)
	related, err := process.ItemBlockAction("a.io/x").GetRelatedItems(t.Context(), input("a"))
	require.NoError(t, err)
	require.Equal(t, []plugin.ResourceIdentifier{claim}, related)
}
