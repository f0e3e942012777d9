package cli_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// manifests answers from items in memory, three of them on a page.
type manifests struct {
	manifestv1.UnimplementedManifestServiceServer
	clock *clocktesting.FakeClock // steps with each page
	items []*manifestv1.Item
	total int64
	asked *manifestv1.ListItemsRequest // the last one
	slow  int                          // how many calls of GetManifest take too long
	stuck bool                         // they take as long each time
}

func (m *manifests) GetManifest(_ context.Context, req *manifestv1.GetManifestRequest) (*manifestv1.GetManifestResponse, error) {
	if m.slow--; m.slow >= 0 {
		m.clock.Step(61 * time.Second)
		if m.stuck {
			return nil, fmt.Errorf("the tarball is being read: %w", context.DeadlineExceeded)
		}
		return nil, errgrpc.WithReason(fmt.Errorf("its manifest is being made: %w", context.DeadlineExceeded), errgrpc.ReasonStillWorking, nil)
	}
	if req.GetBackup() != "done" {
		return nil, fmt.Errorf("backup %q: %w", req.GetBackup(), errgrpc.ErrNotFound)
	}
	resp := &manifestv1.GetManifestResponse{Items: max(m.total, int64(len(m.items)))}
	for _, i := range m.items {
		if !slices.ContainsFunc(resp.GetKinds(), func(k *manifestv1.KindCount) bool { return k.GetKind() == i.GetKind() }) {
			resp.Kinds = append(resp.Kinds, &manifestv1.KindCount{Group: i.GetGroup(), Kind: i.GetKind(), Resource: i.GetResource()})
		}
	}
	if req.GetWithNamespaces() {
		resp.Namespaces = []*manifestv1.NamespaceCount{{Items: 3}, {Namespace: "other", Items: 1}, {Namespace: "shop", Items: max(m.total, 9)}}
	}
	return resp, nil
}

func (m *manifests) ListItems(_ context.Context, req *manifestv1.ListItemsRequest) (*manifestv1.ListItemsResponse, error) {
	m.asked = req
	if req.GetName() == "[" {
		return nil, errgrpc.Field("name", "is not a pattern")
	}
	resp, skip := &manifestv1.ListItemsResponse{}, len(req.GetPageToken())
	for _, i := range m.items {
		named, err := path.Match(req.GetName(), i.GetName())
		in := req.GetNamespace() == "" || i.GetNamespace() == req.GetNamespace() || req.GetWithClusterScoped() && i.GetNamespace() == ""
		of := len(req.GetKinds()) == 0 || slices.ContainsFunc(req.GetKinds(), func(k string) bool { return strings.HasPrefix(k, i.GetResource()) })
		if !in || !of || req.GetName() != "" && (err != nil || !named) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		if len(resp.Items) == 3 {
			resp.NextPageToken = req.GetPageToken() + "xxx"
			break
		}
		resp.Items = append(resp.Items, i)
	}
	m.clock.Step(700 * time.Millisecond)
	return resp, nil
}

func (m *manifests) findItem(kind, namespace, name string) (*manifestv1.Item, error) {
	for _, i := range m.items {
		if strings.HasPrefix(kind, i.GetResource()) && i.GetNamespace() == namespace && i.GetName() == name {
			return i, nil
		}
	}
	return nil, fmt.Errorf("item not in manifest: %w", errgrpc.ErrNotFound)
}

func (m *manifests) GetItem(_ context.Context, req *manifestv1.GetItemRequest) (*manifestv1.GetItemResponse, error) {
	item, err := m.findItem(req.GetKind(), req.GetNamespace(), req.GetName())
	if err != nil {
		return nil, err
	}
	return &manifestv1.GetItemResponse{Item: item, Masked: item.GetKind() == "Secret", Body: []byte(`{"kind":"` + item.GetKind() + `","metadata":{"managedFields":[],"name":"n"},"data":{"a":"***"},"big":9007199254740993}`)}, nil
}

func (m *manifests) GetUnmaskedItem(_ context.Context, req *manifestv1.GetUnmaskedItemRequest) (*manifestv1.GetUnmaskedItemResponse, error) {
	item, err := m.findItem(req.GetKind(), req.GetNamespace(), req.GetName())
	if err != nil {
		return nil, err
	}
	return &manifestv1.GetUnmaskedItemResponse{Item: item, Body: []byte(`{"kind":"Secret","data":{"a":"aGk="}}`)}, nil
}

// newStoredItem makes an item; owner is the name of an object that "uid-"+owner is the UID of.
func newStoredItem(group, kind, resource, ns, name, owner string, references ...*manifestv1.Reference) *manifestv1.Item {
	i := &manifestv1.Item{
		Group: group, Version: "v1", Kind: kind, Resource: resource, Namespace: ns, Name: name, Uid: "uid-" + name, Size: 123, Sha256: []byte{0xab, 0xcd}, ContentHash: []byte{0xef},
		Path: "resources/" + resource + "/" + name + ".json", References: references,
	}
	if owner != "" {
		i.Owners = []*manifestv1.Owner{{ApiVersion: "apps/v1", Kind: "Owner", Name: owner, Uid: "uid-" + owner, Controller: true}}
	}
	return i
}

func newReference(relation, group, kind, ns, name string) *manifestv1.Reference {
	return &manifestv1.Reference{Relation: relation, Group: group, Kind: kind, Namespace: ns, Name: name}
}

// newManifests holds a shop, whose Pod has a claim that names its volume and is named by it.
func newManifests(clock *clocktesting.FakeClock) *manifests {
	page := newReference("mounts", "", "ConfigMap", "shop", "page")
	web := newStoredItem("apps", "Deployment", "deployments", "shop", "web", "", page, newReference("reads", "", "Secret", "shop", "absent"))
	web.Labels, web.Annotations, web.Actions, web.Live = map[string]string{"app": "web"}, map[string]string{"a": "b"}, []string{"velero.io/pod"}, true
	return &manifests{clock: clock, items: []*manifestv1.Item{
		web,
		newStoredItem("apps", "ReplicaSet", "replicasets", "shop", "web-1", "web", page),
		newStoredItem("", "ConfigMap", "configmaps", "shop", "page", ""),
		newStoredItem("", "PersistentVolume", "persistentvolumes", "", "pv", "", newReference("binds", "", "PersistentVolumeClaim", "shop", "data"), newReference("provisionedBy", "storage.k8s.io", "StorageClass", "", "fast")),
		newStoredItem("", "PersistentVolumeClaim", "persistentvolumeclaims", "shop", "data", "", newReference("binds", "", "PersistentVolume", "", "pv")),
		newStoredItem("", "Pod", "pods", "shop", "web-1-x", "web-1", page, newReference("claims", "", "PersistentVolumeClaim", "shop", "data"), newReference("runsAs", "", "ServiceAccount", "other", "far")),
		newStoredItem("", "Pod", "pods", "shop", "web-1-y", "web-1", newReference("claims", "", "PersistentVolumeClaim", "shop", "data")),
		newStoredItem("", "Secret", "secrets", "shop", "db", ""),
		newStoredItem("", "ServiceAccount", "serviceaccounts", "other", "far", ""),
		newStoredItem("example.com", "Ring", "rings", "shop", "one", "", newReference("next", "example.com", "Ring", "shop", "two")),
		newStoredItem("example.com", "Ring", "rings", "shop", "two", "", newReference("next", "example.com", "Ring", "shop", "one")),
		newStoredItem("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "", `say:"hi"`, "", newReference("reads", "", "Secret", "shop", "a\x1b[2J")),
		newStoredItem("storage.k8s.io", "StorageClass", "storageclasses", "", "fast", ""),
	}}
}

// TestLookingIntoBackups compares what the commands print with testdata/contents.golden. UPDATE_GOLDEN=1 writes the
// file anew.
func TestLookingIntoBackups(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"items", "items done", "items done -n shop -o wide", "items done -n none", "items done --kind pods,secrets -o name", "items done --kind deployments,replicasets -o yaml", "items done --kind rings -o jsonpath={.items[*].metadata.name}",
		"items done --name web-* -o custom-columns=KIND:.kind,NAME:.metadata.name,HASH:.stored.sha256", "items done --name none -o json", "items done --name [", "items done --hash xyz -o xml", "items done --manifest-address nowhere",
		"cat done", "cat done web", "cat done deployments/web -n shop", "cat done deployments/web -n shop -o json --show-managed-fields", "cat done secrets/db -n shop", "cat done secrets/db -n shop --show-secrets -o jsonpath={.data.a}",
		"cat done pods/web-1-x", "cat done pods/none -n shop", "cat done deployments/web -n shop -o table",
		"tree", "tree absent", "tree done", "tree done -n shop", "tree done -n none", "tree done replicasets/web-1 -n shop", "tree done pods/web-1-x", "tree done persistentvolumes/pv", "tree done web", "tree done -o svg",
		"tree done replicasets/web-1 -n shop -o dot", "tree done -n other -o mermaid", "tree done clusterroles/say:\"hi\" -o dot", "tree done clusterroles/say:\"hi\" -o mermaid", "tree done rings/one -n shop -o mermaid",
		"__complete items |d", "__complete items done |", "__complete cat done |", "__complete cat done |pods/", "__complete tree done -n other |serviceaccounts/f", "__complete items done -n |", "__complete items done --kind |", "__complete cat absent |",
	} {
		fmt.Fprintf(&got, "$ backup %s\n%s\n", line, runContents(t, line))
	}
	golden := filepath.Join("testdata", "contents.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// runContents runs a command line; what follows "|" is an argument of its own, even when empty.
func runContents(t *testing.T, line string) string {
	t.Helper()
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock = clock
	c.ServeManifests(t, newManifests(clock))
	command, typed, completes := strings.Cut(line, "|")
	args := append([]string{"backup"}, strings.Fields(command)...)
	if completes {
		args = append(append([]string{"__complete", "backup"}, args[2:]...), typed)
	}
	result := c.Run(t.Context(), "", args...)
	return fmt.Sprintf("%s--- stderr\n%s--- exit %d\n", result.Out, result.Err, result.Code)
}

// A backup of 100,000 objects is not drawn unless a part of it is named.
func TestALargeBackupIsNotDrawnWhole(t *testing.T) {
	c := newTestCluster(t, "backup")
	m := newManifests(clocktesting.NewFakeClock(now))
	m.total = 100_000
	c.ServeManifests(t, m)
	result := c.Run(t.Context(), "", "backup", "tree", "done")
	require.Equal(t, "NAMESPACE   OBJECTS\n<none>      3\nother       1\nshop        100000\n", result.Out)
	require.Equal(t, "Backup \"done\" holds 100000 objects; give --namespace or KIND/NAME to draw a part of them.\n", result.Err)
	require.Zero(t, result.Code)
	require.Nil(t, m.asked, "its objects were not read")
}

// What belongs to a cluster-scoped object can be anywhere: of a very large backup the service looks for it.
func TestATreeDoesNotReadAVeryLargeBackup(t *testing.T) {
	c := newTestCluster(t, "backup")
	m := newManifests(clocktesting.NewFakeClock(now))
	m.total = 100_001
	c.ServeManifests(t, m)
	result := c.Run(t.Context(), "", "backup", "tree", "done", "persistentvolumes/pv")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, `backup "done" holds 100001 objects, too many for a tree: give --namespace, or list what the object owns and needs with "holdfast backup related done persistentvolumes/pv"`)
	require.Nil(t, m.asked, "its objects were not read")
}

// On a terminal the line that tells how far a command is goes away when the command is done.
func TestSlowListingsTellHowFarTheyAre(t *testing.T) {
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock, c.Live = clock, true
	c.ServeManifests(t, newManifests(clock))
	result := c.Run(t.Context(), "", "backup", "items", "done", "-o", "name")
	require.True(t, strings.HasPrefix(result.Err, "\r\x1b[K6 objects found, still reading\r\x1b[K"), "%q", result.Err)
	require.True(t, strings.HasSuffix(result.Err, "\r\x1b[K"), "%q", result.Err)
}

// A manifest that is made on first use may take longer than the service lets a call take.
func TestCallsThatTakeTooLongAreRepeated(t *testing.T) {
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock, c.Live = clock, true
	m := newManifests(clock)
	m.slow = 2
	c.ServeManifests(t, m)
	result := c.Run(t.Context(), "", "backup", "tree", "done")
	require.Zero(t, result.Code, result.Err)
	require.Contains(t, result.Out, "Deployment/web")
	m.slow = 1000
	result = c.Run(t.Context(), "", "backup", "tree", "done")
	require.Equal(t, 1, result.Code, "not for ever")
	require.Contains(t, result.Err, "its manifest is being made")
}

// A call that begins anew each time would not end either when it is repeated.
func TestCallsThatBeginAnewAreNotRepeated(t *testing.T) {
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock, c.Live = clock, true
	m := newManifests(clock)
	m.slow, m.stuck = 1000, true
	c.ServeManifests(t, m)
	result := c.Run(t.Context(), "", "backup", "tree", "done")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "the tarball is being read")
	require.Equal(t, 999, m.slow)
}

func TestFiltersReachTheService(t *testing.T) {
	c := clitest.New(t)
	m := newManifests(clocktesting.NewFakeClock(now))
	c.ServeManifests(t, m)
	c.Run(t.Context(), "", "backup", "items", "b", "-n", "shop", "--kind", "pod", "--kind", "deploy,sts", "--name", "w*", "-l", "a=b,c", "--annotation", "x=y,z", "--annotation", "w",
		"--owner", "deploy/web", "--uid", "u", "--hash", "ABCD")
	require.Equal(t, []string{"pod", "deploy", "sts"}, m.asked.GetKinds())
	require.Equal(t, []string{"x=y,z", "w"}, m.asked.GetAnnotations())
	require.Equal(t, []string{"b", "shop", "w*", "a=b,c", "deploy/web", "u", "abcd"}, []string{
		m.asked.GetBackup(), m.asked.GetNamespace(), m.asked.GetName(), m.asked.GetLabelSelector(), m.asked.GetOwner(), m.asked.GetUid(), m.asked.GetHash(),
	})

	c.Run(t.Context(), "", "--namespace", "velero", "backup", "items", "b")
	require.Empty(t, m.asked.GetNamespace(), "before the command it is the namespace of the server")
	result := c.Run(t.Context(), "", "__complete", "restore", "create", "--from-backup", "")
	require.Equal(t, ":4\n", result.Out, "no backups, and no files")
	result = c.Run(t.Context(), "", "__complete", "restore", "create", "r", "--from-backup", "done", "-n", "shop", "--item", "pods/")
	require.Equal(t, "pods/web-1-x\npods/web-1-y\n:4\n", result.Out)
	result = c.Run(t.Context(), "", "__complete", "restore", "create", "r", "--from-backup", "done", "-n", "shop", "--files", "da")
	require.Equal(t, "data:\n:6\n", result.Out)
	require.Equal(t, "persistentvolumeclaims shop da*", strings.Join([]string{m.asked.GetKinds()[0], m.asked.GetNamespace(), m.asked.GetName()}, " "))
	result = c.Run(t.Context(), "", "__complete", "restore", "create", "r", "--from-backup", "done", "-n", "shop", "--files", "data:e")
	require.Equal(t, ":4\n", result.Out, "no files of this machine")
	c.Run(t.Context(), "", "-n", "velero", "backup", "items", "b", "-n", "shop")
	require.Equal(t, "shop", m.asked.GetNamespace())
}
