package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// newBeginningAction begins an operation for some objects, of which different things become.
func newBeginningAction() starter {
	return starter{&fakeAction{name: "a.io/begins", do: func(_ context.Context, id action.Identity, o *action.Object) (r action.BackupResult, err error) {
		switch id.Name {
		case "cm-000":
			r, err = annotatedResult(o, velerov1.AnnotationSkipFromBackup, "")
		case "cm-006":
			err = errors.New("malformed answer")
		case "cm-012":
			r.Additional = []action.Item{itemOf("unicorns.example.com a/x")}
		case "cm-018", "cm-024":
			r.PostOperation = []action.Item{itemOf("configmaps a/" + id.Name)}
		default:
			return r, nil
		}
		r.OperationID = "op of " + id.Name
		return r, err
	}}}
}

// Whatever becomes of an object, the backup waits for an operation that an action began for it:
// also where a later holder has only the record of the call.
func TestAnOperationIsWaitedForWhateverBecomesOfItsObject(t *testing.T) {
	later := func() *fakeAction {
		return &fakeAction{name: "b.io/later", do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
			switch id.Name {
			case "cm-018":
				return action.BackupResult{}, errors.New("broken")
			case "cm-024":
				return annotatedResult(o, velerov1.AnnotationSkipFromBackup, "")
			}
			return action.BackupResult{}, nil
		}}
	}
	begins := newBeginningAction()
	base := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	objects := []string{"cm-000", "cm-006", "cm-012", "cm-018", "cm-024"}
	begun := func(t *testing.T, s *setup) (names []string, errs int) {
		t.Helper()
		res, got := s.runJob(t)
		for _, o := range res.Operations {
			require.Equal(t, "op of "+o.Item.Name, o.ID)
			require.Equal(t, "a.io/begins BackupItemActionV2 configmaps a", o.Action+" "+o.Kind+" "+o.Item.Resource+" "+o.Item.Namespace)
			require.False(t, o.Created.IsZero())
			require.Nil(t, o.Home)
			require.Empty(t, o.Key)
			if o.Item.Name > "cm-012" {
				require.Equal(t, []operation.Resource{{Resource: "configmaps", Namespace: "a", Name: o.Item.Name}}, o.PostOperation)
			}
			names = append(names, o.Item.Name)
		}
		for _, e := range got.notes {
			if strings.Contains(e.Err, effect.ErrUnclear.Error()) && slices.Contains(objects, e.Name) {
				names = append(names, e.Name) // no process can know
			}
		}
		slices.Sort(names)
		return names, res.Errors
	}
	names, count := begun(t, base.addActions(begins, later()))
	require.Equal(t, objects, names)
	require.Equal(t, 3, count, "the objects that could not be stored")
	for n := 6; n < 14; n += 2 {
		s := base.firstOwner(t).addActions(begins, later())
		died := dieAt(s.store, n)
		_, err := Run(t.Context(), s.cfg, s.job)
		require.ErrorIs(t, err, errDead)
		require.True(t, died())
		s.store.Inject(nil)
		names, _ := begun(t, s.nextOwner(t, 2))
		require.Equal(t, objects, names, "dead at write %d", n)
	}
}

// keyedAction is an action whose call carries an idempotency key; it keeps what it was called with.
type keyedAction struct {
	starter
	own  bool // the starter says what it begins
	mu   sync.Mutex
	keys map[string][]string // by object
}

func (k *keyedAction) beginOperation(ctx context.Context, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	if k.do == nil {
		return action.BackupResult{Object: o}, nil
	}
	return k.Execute(ctx, o, b)
}

func (k *keyedAction) Start(ctx context.Context, o *action.Object, b *action.Backup, key string) (action.BackupResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.BackupResult{}, err
	}
	k.mu.Lock()
	k.keys[id.Name] = append(k.keys[id.Name], key)
	k.mu.Unlock()
	r, err := k.beginOperation(ctx, o, b)
	if k.do == nil || !k.own {
		r.OperationID = "op of " + id.Name
	}
	if id.Name == "cm-006" {
		r.Process = "p1"
	}
	return r, err
}

// A call that carries an idempotency key is repeated by a later holder, with the same key, where its
// outcome is not known; its object costs no error, and no operation is lost.
func TestACallWithAKeyIsRepeatedWithTheSame(t *testing.T) {
	base := newSetup(t, newEstateServer(), fiftyConfigMaps(), "a")
	repeated := 0
	for n := 3; n < 16; n++ {
		fake := &fakeAction{name: "a.io/begins", do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
			return action.BackupResult{}, nil
		}}
		begins := &keyedAction{starter: starter{fake}, keys: map[string][]string{}}
		s := base.firstOwner(t).addActions(begins)
		died := dieAt(s.store, n)
		_, err := Run(t.Context(), s.cfg, s.job)
		require.ErrorIs(t, err, errDead)
		require.True(t, died())
		s.store.Inject(nil)
		res, got := s.nextOwner(t, 2).runJob(t)
		require.Empty(t, got.notesAt(joblog.Error))
		require.Len(t, res.Operations, 50, "dead at write %d", n)
		seen := map[string]bool{}
		for _, o := range res.Operations {
			keys := begins.keys[o.Item.Name]
			require.NotEmpty(t, o.Key)
			require.False(t, seen[o.Key], "each has a key of its own")
			seen[o.Key] = true
			for _, key := range keys {
				require.Equal(t, o.Key, key)
			}
			repeated += len(keys) - 1
			require.Equal(t, o.Item.Name == "cm-006", o.Home != nil)
		}
	}
	require.Positive(t, repeated)
}

// Items are stored again as they are now, past the filters, and the actions see them; none begins
// an operation.
func TestItemsAreStoredAgain(t *testing.T) {
	api := newEstateServer()
	s := newSetup(t, api, fiftyConfigMaps(), "a")
	begins := newBeginningAction()
	begins.do = func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		r, err := annotatedResult(o, "trace", "again")
		if id.Name == "cm-002" {
			r.OperationID = "another"
		}
		return r, err
	}
	starts := &keyedAction{starter: starter{&fakeAction{name: "b.io/starts"}}, keys: map[string][]string{}}
	s.addActions(begins, starts)
	s.job.Cut = cut.New(revisions{s.lists, cut.NewKinds(s.lists, clock.RealClock{})}, false)
	api.Add("widgets.example.com", kubetest.Object{Namespace: "b", Name: "made", Body: map[string]any{"state": "done"}})
	var items []operation.Resource
	api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: "data", Body: map[string]any{"spec": map[string]string{"volumeName": "pv1"}}})
	for _, text := range []string{"persistentvolumeclaims a/data", "configmaps a/cm-000", "configmaps a/cm-002", "widgets.example.com b/made", "widgets.example.com b/gone", "unicorns.example.com a/x"} {
		i := itemOf(text)
		items = append(items, operation.Resource{Group: i.Group, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name})
	}
	res, err := StoreAgain(t.Context(), s.cfg, s.job, items)
	require.NoError(t, err)
	got := s.readStored(t, res)
	require.Equal(t, []string{configMap("cm-000"), configMap("cm-002"), "resources/persistentvolumeclaims/namespaces/a/data.json", "resources/widgets.example.com/namespaces/b/made.json"}, got.items)
	require.Empty(t, starts.keys, "nothing is started")
	require.Empty(t, s.intendedObjects(t))
	require.Empty(t, res.Operations)
	require.Equal(t, 1, res.Warnings, fmt.Sprint(got.notesAt(joblog.Warning)))
	require.Equal(t, 2, res.Errors, fmt.Sprint(got.notesAt(joblog.Error)))
	bodies := s.storedBodies(t, res)
	require.Equal(t, "done", bodies["resources/widgets.example.com/namespaces/b/made.json"]["state"])
	require.Contains(t, fmt.Sprint(bodies[configMap("cm-000")]["metadata"]), "again")
	for _, rec := range got.records {
		require.Empty(t, rec.Volumes, "what became of its volume was said")
	}
}
