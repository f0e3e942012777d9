package pluginhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v1"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// This file is the other side: the test binary, started as a plugin. What it does depends on the
// name it is started by.

var handshake = goplugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "VELERO_PLUGIN", MagicCookieValue: "hello"}

// stderr is the process's own: go-plugin puts another one into os.Stderr.
var stderr = os.Stderr

// blockForever is select{} that the runtime does not take for a deadlock.
func blockForever() {
	for {
		_ = syscall.Pause() // returns at each signal that is handled
	}
}

// beAPlugin never returns to the tests.
func beAPlugin() {
	name := filepath.Base(os.Args[0])
	switch {
	case name == "exit":
		fmt.Fprintln(os.Stderr, "panic: no licence")
		os.Exit(2)
	case name == "mute":
		blockForever()
	case name == "babble":
		fmt.Println("hello, I am a plugin")
		blockForever()
	case name == "endless":
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	case name == "elsewhere":
		fmt.Println("1|2|tcp|192.0.2.1:80|grpc|")
		blockForever()
	case name == "netrpc":
		fmt.Println("1|2|unix|/nowhere|netrpc|")
		blockForever()
	case name == "garbage":
		speakGarbage()
	case name == "streams-0", name == "streams-1":
		allowStreams(name[len(name)-1] - '0')
	case name == "parent":
		child := exec.Command("/bin/sleep", "1000000")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr // keeps the pipes open
		if err := child.Start(); err != nil {
			panic(err)
		}
		serveVelero(&vendor{child: child.Process.Pid, list: listAll})
	case strings.HasPrefix(name, "lister-"):
		serveVelero(&vendor{list: func() []*velero.PluginIdentifier { return listings[name] }})
	case name == "sdk":
		serveWithSDK()
	case name == "starters":
		serveStarters()
	case name == "twins", name == "unlike-twins":
		serveVelero(&vendor{list: func() []*velero.PluginIdentifier {
			return []*velero.PluginIdentifier{
				{Kind: "BackupItemActionV2", Name: "twin.io/mover"}, {Kind: "RestoreItemActionV2", Name: "twin.io/mover"},
				{Kind: "AsyncBackupItemAction", Name: "twin.io/listed"},
			}
		}, described: []*pluginv1.Plugin{
			{Kind: pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION, Name: "twin.io/mover"},
			{Kind: pluginv1.Kind_KIND_ASYNC_RESTORE_ITEM_ACTION, Name: "twin.io/mover"},
		}})
	case name == "misdescribed":
		serveVelero(&vendor{list: func() []*velero.PluginIdentifier {
			return []*velero.PluginIdentifier{{Kind: "DeleteItemAction", Name: "described.io/fine"}}
		}, described: []*pluginv1.Plugin{
			{Kind: 99, Name: "described.io/x"},
			{Kind: pluginv1.Kind_KIND_DELETE_ITEM_ACTION, Name: "described.io/fine", Touches: []string{"pods"}},
			{Kind: pluginv1.Kind_KIND_DELETE_ITEM_ACTION, Name: "described.io/secret"},
			{Kind: pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION, Name: "described.io/slow"},
		}})
	case name == "sick":
		serveVelero(&vendor{list: func() []*velero.PluginIdentifier { os.Exit(3); return nil }})
	default:
		serveVelero(&vendor{list: listAll})
	}
	os.Exit(0)
}

func speakGarbage() {
	listener := listenWithHandshake("")
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		_, _ = conn.Write([]byte(strings.Repeat("\x00\xff\x07garbage", 1000)))
		_ = conn.Close()
	}
}

// listenWithHandshake prints a handshake line, with more fields after the usual ones.
func listenWithHandshake(more string) net.Listener {
	socket := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "own")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|2|unix|%s|grpc|%s\n", socket, more)
	return listener
}

// allowStreams speaks HTTP/2 as far as to limit the streams, and never answers one.
func allowStreams(most byte) {
	listener := listenWithHandshake("")
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		settings := []byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3 /* SETTINGS_MAX_CONCURRENT_STREAMS */, 0, 0, 0, most}
		acknowledged := []byte{0, 0, 0, 4, 1, 0, 0, 0, 0}
		if _, err := conn.Write(append(settings, acknowledged...)); err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, conn)
	}
}

func serveVelero(v *vendor) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{"all": v},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			recovers := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
				defer func() {
					if p := recover(); p != nil {
						err = status.Errorf(codes.Aborted, "plugin panicked: %v", p)
					}
				}()
				return next(ctx, req)
			}
			return grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(recovers))...)
		},
	})
}

// listings are what binaries of these names answer.
var listings = map[string][]*velero.PluginIdentifier{
	"lister-bad": {
		{Kind: "Spaceship", Name: "a.io/x"}, {Kind: "DeleteItemAction", Name: "noslash"}, {Kind: "DeleteItemAction", Name: "UPPER/x"},
		{Kind: "DeleteItemAction", Name: "a.io/"}, {Kind: "DeleteItemAction", Name: "a.io/x/y"}, {Kind: "PluginLister", Name: "a.io/x"},
		{Kind: "DeleteItemAction", Name: "lister.io/fine", Command: "/bin/false"}, {Kind: "DeleteItemAction", Name: "lister.io/fine"},
	},
	"lister-order-1": {
		{Kind: "BackupItemActionV2", Name: "order.io/b"}, {Kind: "BackupItemActionV2", Name: "order.io/both"}, {Kind: "BackupItemAction", Name: "order.io/z"},
		{Kind: "BackupItemAction", Name: "order.io/both"}, {Kind: "BackupItemAction", Name: "order.io/c"},
		{Kind: "DeleteItemAction", Name: "b.io/a"}, {Kind: "DeleteItemAction", Name: "a.io/x"},
		{Kind: "RestoreItemAction", Name: "velero.io/csi-thing"},
	},
	"lister-order-2": {{Kind: "BackupItemAction", Name: "order.io/a"}, {Kind: "DeleteItemAction", Name: "a.io/b"}},
}

// behaviours are the names registered under every kind; what they do is in the method do.
var behaviours = []string{
	"echo", "change", "error", "panic", "exit", "third", "hang", "freeze", "huge", "garbled", "other", "empty", "null", "nameless", "more",
	"flood", "many", "unavailable", "pid", "wait", "skip", "start", "long", "negative", "stack", "env", "deadline", "hasty",
}

func listAll() []*velero.PluginIdentifier {
	var all []*velero.PluginIdentifier
	for _, kind := range []string{"ObjectStore", "VolumeSnapshotter", "BackupItemAction", "RestoreItemAction", "DeleteItemAction", "ItemBlockAction"} {
		for _, b := range behaviours {
			all = append(all, &velero.PluginIdentifier{Kind: kind, Name: "test.io/" + b, Command: "elsewhere"})
			if kind == "BackupItemAction" || kind == "RestoreItemAction" {
				all = append(all, &velero.PluginIdentifier{Kind: kind + "V2", Name: "two.io/" + b, Command: "elsewhere"})
			}
		}
	}
	return all
}

// vendor serves every kind.
type vendor struct {
	goplugin.NetRPCUnsupportedPlugin
	list      func() []*velero.PluginIdentifier
	described []*pluginv1.Plugin // nil for a plugin that serves Velero's protocol only
	calls     atomic.Int32
	child     int
	store     store
}

// GRPCClient is not used on this side.
func (v *vendor) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is a plugin")
}

// GRPCServer registers everything.
func (v *vendor) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	velero.RegisterPluginListerServer(s, lister{vendor: v})
	if v.described != nil {
		pluginv1.RegisterPluginServiceServer(s, describer{vendor: v})
	}
	velero.RegisterBackupItemActionServer(s, backup1{vendor: v})
	velerov2.RegisterBackupItemActionServer(s, backup2{vendor: v})
	velero.RegisterRestoreItemActionServer(s, restore1{vendor: v})
	velerov2.RegisterRestoreItemActionServer(s, restore2{vendor: v})
	velero.RegisterDeleteItemActionServer(s, delete1{vendor: v})
	velerov1.RegisterItemBlockActionServer(s, block1{vendor: v})
	velero.RegisterObjectStoreServer(s, store1{vendor: v})
	velero.RegisterVolumeSnapshotterServer(s, volume1{vendor: v})
	return nil
}

// behaveAs behaves according to the plugin's name and returns the item to answer with.
func (v *vendor) behaveAs(ctx context.Context, plugin string, item []byte) ([]byte, error) {
	_, behaviour, _ := strings.Cut(plugin, "/")
	switch behaviour {
	case "change":
		return changeItem(item, "changed", "yes"), nil
	case "pid":
		return changeItem(item, "pid", strconv.Itoa(os.Getpid()), "child", strconv.Itoa(v.child)), nil
	case "env":
		return changeItem(item, "args", strings.Join(os.Args[1:], " "), "namespace", os.Getenv("VELERO_NAMESPACE"), "kubeconfig", os.Getenv("KUBECONFIG"),
			"secret", os.Getenv("HOLDFAST_NATS_URL"), "home", os.Getenv("OWN")), nil
	case "deadline":
		_, has := ctx.Deadline()
		return changeItem(item, "deadline", strconv.FormatBool(has)), nil
	case "error":
		return nil, errors.New("no such volume")
	case "stack":
		s, err := status.New(codes.Unknown, "deep").WithDetails(&velero.Stack{Frames: []*velero.StackFrame{{File: "snap.go", Line: 7, Function: "pkg.Snap"}}})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "the storage array is rebooting")
	case "panic":
		panic("index out of range")
	case "exit":
		fmt.Fprintln(stderr, "fatal error: out of ideas")
		os.Exit(4)
	case "third":
		if v.calls.Add(1) == 3 {
			os.Exit(5)
		}
	case "hang":
		fmt.Fprintln(stderr, "hanging")
		<-make(chan struct{}) // whatever becomes of ctx
	case "freeze":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-make(chan struct{}) // the signal may take a moment
	case "huge":
		return []byte(`{"kind":"Pod","pad":"` + strings.Repeat("x", 64<<20) + `"}`), nil
	case "garbled":
		return []byte("{\"kind\":\"Pod\",\xff\x00"), nil
	case "other":
		return []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"b"}}`), nil
	case "empty":
		return nil, nil
	case "null":
		return []byte("null"), nil
	case "flood":
		for i := range 5000 {
			fmt.Fprintf(stderr, `{"@level":"error","@message":"line %d","logSource":"x.go:1"}`+"\n", i)
		}
		fmt.Fprint(stderr, strings.Repeat("y", 1<<20), "\n", `{"@message":1,"@level":[]}`, "\n")
	}
	return item, nil
}

func changeItem(item []byte, pairs ...string) []byte {
	var object map[string]any
	if err := json.Unmarshal(item, &object); err != nil {
		panic(err)
	}
	annotations := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		annotations[pairs[i]] = pairs[i+1]
	}
	object["metadata"].(map[string]any)["annotations"] = annotations
	changed, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return changed
}

func moreIdentifiers(plugin string) []*velero.ResourceIdentifier {
	switch _, behaviour, _ := strings.Cut(plugin, "/"); behaviour {
	case "many": // 2 bytes each on the wire
		return slices.Repeat([]*velero.ResourceIdentifier{{}}, 3<<20)
	case "more", "wait", "skip":
		return []*velero.ResourceIdentifier{{Resource: "secrets", Namespace: "a", Name: "s"}, {Group: "apps", Resource: "deployments", Namespace: "a", Name: "d"}}
	case "nameless":
		return []*velero.ResourceIdentifier{{Resource: "secrets", Namespace: "a", Name: "s"}, {Resource: "secrets", Namespace: "a"}}
	}
	return nil
}

func vendorSelector() *velero.ResourceSelector {
	return &velero.ResourceSelector{IncludedResources: []string{"pods"}, ExcludedNamespaces: []string{"kube-system"}, Selector: "a=b"}
}

type lister struct {
	velero.UnimplementedPluginListerServer
	*vendor
}

func (l lister) ListPlugins(context.Context, *velero.Empty) (*velero.ListPluginsResponse, error) {
	return &velero.ListPluginsResponse{Plugins: l.list()}, nil
}

type describer struct {
	pluginv1.UnimplementedPluginServiceServer
	*vendor
}

func (d describer) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{Plugins: d.vendor.described}, nil
}

type backup1 struct {
	velero.UnimplementedBackupItemActionServer
	*vendor
}

func (b backup1) AppliesTo(context.Context, *velero.BackupItemActionAppliesToRequest) (*velero.BackupItemActionAppliesToResponse, error) {
	return &velero.BackupItemActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (b backup1) Execute(ctx context.Context, r *velero.ExecuteRequest) (*velero.ExecuteResponse, error) {
	item, err := b.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	return &velero.ExecuteResponse{Item: item, AdditionalItems: moreIdentifiers(r.GetPlugin())}, err
}

type backup2 struct {
	velerov2.UnimplementedBackupItemActionServer
	*vendor
}

func (b backup2) AppliesTo(context.Context, *velerov2.BackupItemActionAppliesToRequest) (*velerov2.BackupItemActionAppliesToResponse, error) {
	return &velerov2.BackupItemActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (b backup2) Execute(ctx context.Context, r *velerov2.ExecuteRequest) (*velerov2.ExecuteResponse, error) {
	item, err := b.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	answer := &velerov2.ExecuteResponse{Item: item, AdditionalItems: moreIdentifiers(r.GetPlugin())}
	if strings.HasSuffix(r.GetPlugin(), "/start") || strings.HasSuffix(r.GetPlugin(), "/other") {
		answer.OperationId, answer.PostOperationItems = "op-1", moreIdentifiers("x/more")
	}
	if strings.HasSuffix(r.GetPlugin(), "/long") {
		answer.OperationId = strings.Repeat("x", 5<<10)
	}
	return answer, err
}

func (b backup2) Progress(_ context.Context, r *velerov2.BackupItemActionProgressRequest) (*velerov2.BackupItemActionProgressResponse, error) {
	p, err := operationProgress(r.GetOperationId(), r.GetBackup())
	return &velerov2.BackupItemActionProgressResponse{Progress: p}, err
}

func (b backup2) Cancel(context.Context, *velerov2.BackupItemActionCancelRequest) (*emptypb.Empty, error) {
	return nil, errors.New("cancelled too late")
}

// operationProgress behaves as the operation is called.
func operationProgress(id string, job []byte) (*velero.OperationProgress, error) {
	p := &velero.OperationProgress{NCompleted: 1, NTotal: 2, OperationUnits: "Bytes", Description: formatInt(os.Getpid())}
	switch id {
	case "hang":
		fmt.Fprintln(stderr, "hanging")
		<-make(chan struct{})
	case "exit":
		os.Exit(6)
	case "none":
		return nil, nil
	case "verbose":
		p.Description = strings.Repeat("\x1b[31m\r\n", 1<<20/7)
	case "monstrous":
		p.Description = strings.Repeat("x", 4<<20)
	case "gone":
		return nil, status.Error(codes.NotFound, "no such operation")
	case "failed":
		p.Completed, p.Err, p.Description = true, "disk full", string(job)
	}
	return p, nil
}

type restore1 struct {
	velero.UnimplementedRestoreItemActionServer
	*vendor
}

func (a restore1) AppliesTo(context.Context, *velero.RestoreItemActionAppliesToRequest) (*velero.RestoreItemActionAppliesToResponse, error) {
	return &velero.RestoreItemActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (a restore1) Execute(ctx context.Context, r *velero.RestoreItemActionExecuteRequest) (*velero.RestoreItemActionExecuteResponse, error) {
	item, err := a.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	skip := strings.HasSuffix(r.GetPlugin(), "/skip")
	if skip {
		item = nil
	}
	return &velero.RestoreItemActionExecuteResponse{Item: item, AdditionalItems: moreIdentifiers(r.GetPlugin()), SkipRestore: skip}, err
}

type restore2 struct {
	velerov2.UnimplementedRestoreItemActionServer
	*vendor
}

func (a restore2) AppliesTo(context.Context, *velerov2.RestoreItemActionAppliesToRequest) (*velerov2.RestoreItemActionAppliesToResponse, error) {
	return &velerov2.RestoreItemActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (a restore2) Execute(ctx context.Context, r *velerov2.RestoreItemActionExecuteRequest) (*velerov2.RestoreItemActionExecuteResponse, error) {
	item, err := a.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	answer := &velerov2.RestoreItemActionExecuteResponse{Item: item, AdditionalItems: moreIdentifiers(r.GetPlugin())}
	switch _, behaviour, _ := strings.Cut(r.GetPlugin(), "/"); behaviour {
	case "wait":
		answer.WaitForAdditionalItems, answer.AdditionalItemsReadyTimeout = true, durationpb.New(90e9)
	case "negative":
		answer.AdditionalItemsReadyTimeout = durationpb.New(-1)
	case "skip":
		answer.SkipRestore = true
	case "start":
		answer.OperationId = "op-2"
	case "long":
		answer.OperationId = strings.Repeat("x", 5<<10)
	}
	return answer, err
}

func (a restore2) Progress(_ context.Context, r *velerov2.RestoreItemActionProgressRequest) (*velerov2.RestoreItemActionProgressResponse, error) {
	p, err := operationProgress(r.GetOperationId(), r.GetRestore())
	return &velerov2.RestoreItemActionProgressResponse{Progress: p}, err
}

func (a restore2) Cancel(_ context.Context, r *velerov2.RestoreItemActionCancelRequest) (*emptypb.Empty, error) {
	if strings.HasSuffix(r.GetPlugin(), "/long") && (len(r.GetOperationId()) != 5<<10 || !strings.Contains(string(r.GetRestore()), `"r1"`)) {
		return nil, errors.New("no such operation")
	}
	return &emptypb.Empty{}, nil
}

func (a restore2) AreAdditionalItemsReady(ctx context.Context, r *velerov2.RestoreItemActionItemsReadyRequest) (*velerov2.RestoreItemActionItemsReadyResponse, error) {
	_, err := a.behaveAs(ctx, r.GetPlugin(), nil)
	return &velerov2.RestoreItemActionItemsReadyResponse{Ready: len(r.GetAdditionalItems()) == 2 && r.GetAdditionalItems()[1].GetGroup() == "apps"}, err
}

type delete1 struct {
	velero.UnimplementedDeleteItemActionServer
	*vendor
}

func (d delete1) AppliesTo(context.Context, *velero.DeleteItemActionAppliesToRequest) (*velero.DeleteItemActionAppliesToResponse, error) {
	return &velero.DeleteItemActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (d delete1) Execute(ctx context.Context, r *velero.DeleteItemActionExecuteRequest) (*velero.Empty, error) {
	_, err := d.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	return &velero.Empty{}, err
}

type block1 struct {
	velerov1.UnimplementedItemBlockActionServer
	*vendor
}

func (b block1) AppliesTo(context.Context, *velerov1.ItemBlockActionAppliesToRequest) (*velerov1.ItemBlockActionAppliesToResponse, error) {
	return &velerov1.ItemBlockActionAppliesToResponse{ResourceSelector: vendorSelector()}, nil
}

func (b block1) GetRelatedItems(ctx context.Context, r *velerov1.ItemBlockActionGetRelatedItemsRequest) (*velerov1.ItemBlockActionGetRelatedItemsResponse, error) {
	item, err := b.behaveAs(ctx, r.GetPlugin(), r.GetItem())
	items := moreIdentifiers(r.GetPlugin())
	if len(item) > 1<<20 {
		items = []*velero.ResourceIdentifier{{Resource: string(item), Name: "x"}}
	}
	return &velerov1.ItemBlockActionGetRelatedItemsResponse{RelatedItems: items}, err
}

type volume1 struct {
	velero.UnimplementedVolumeSnapshotterServer
	*vendor
}

func (v volume1) Init(_ context.Context, r *velero.VolumeSnapshotterInitRequest) (*velero.Empty, error) {
	return &velero.Empty{}, v.store.init(r.GetConfig())
}

func (v volume1) CreateVolumeFromSnapshot(ctx context.Context, r *velero.CreateVolumeRequest) (*velero.CreateVolumeResponse, error) {
	_, err := v.behaveAs(ctx, r.GetPlugin(), []byte(`{"metadata":{}}`))
	return &velero.CreateVolumeResponse{VolumeId: fmt.Sprint(v.store.config["zone"], r.GetSnapshotId(), r.GetVolumeType(), r.GetVolumeAz(), r.GetIops())}, err
}

func (v volume1) GetVolumeInfo(context.Context, *velero.GetVolumeInfoRequest) (*velero.GetVolumeInfoResponse, error) {
	return &velero.GetVolumeInfoResponse{VolumeType: "fast", Iops: 7}, nil
}

func (v volume1) CreateSnapshot(_ context.Context, r *velero.CreateSnapshotRequest) (*velero.CreateSnapshotResponse, error) {
	return &velero.CreateSnapshotResponse{SnapshotId: "snap-" + r.GetVolumeId() + r.GetVolumeAz() + r.GetTags()["k"]}, nil
}

func (v volume1) DeleteSnapshot(_ context.Context, r *velero.DeleteSnapshotRequest) (*velero.Empty, error) {
	return nil, errors.New("snapshot " + r.GetSnapshotId() + " is in use")
}

func (v volume1) GetVolumeID(ctx context.Context, r *velero.GetVolumeIDRequest) (*velero.GetVolumeIDResponse, error) {
	item, err := v.behaveAs(ctx, r.GetPlugin(), r.GetPersistentVolume())
	return &velero.GetVolumeIDResponse{VolumeId: string(item)}, err
}

func (v volume1) SetVolumeID(ctx context.Context, r *velero.SetVolumeIDRequest) (*velero.SetVolumeIDResponse, error) {
	item, err := v.behaveAs(ctx, r.GetPlugin(), r.GetPersistentVolume())
	return &velero.SetVolumeIDResponse{PersistentVolume: item}, err
}

// store is a bucket of a provider, kept in a directory that the configuration names.
type store struct {
	config map[string]string
	inits  atomic.Int32
}

func (s *store) init(config map[string]string) error {
	if s.inits.Add(1) > 1 && config["once"] != "" {
		return errors.New("told twice")
	}
	if config["bad"] != "" {
		return errors.New("unknown key bad")
	}
	s.config = config
	return nil
}

func (s *store) objectPath(bucket, key string) string {
	return filepath.Join(s.config["dir"], bucket+"-"+strings.ReplaceAll(key, "/", "_"))
}

type store1 struct {
	velero.UnimplementedObjectStoreServer
	*vendor
}

func (s store1) Init(_ context.Context, r *velero.ObjectStoreInitRequest) (*velero.Empty, error) {
	return &velero.Empty{}, s.store.init(r.GetConfig())
}

func (s store1) PutObject(stream grpc.ClientStreamingServer[velero.PutObjectRequest, velero.Empty]) error {
	var body []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&velero.Empty{})
		}
		if err != nil {
			return err
		}
		if _, err := s.behaveAs(stream.Context(), r.GetPlugin(), nil); err != nil {
			return err
		}
		if strings.HasSuffix(r.GetPlugin(), "/hasty") {
			return stream.SendAndClose(&velero.Empty{})
		}
		body = append(body, r.GetBody()...)
		if err := os.WriteFile(s.store.objectPath(r.GetBucket(), r.GetKey()), body, 0o600); err != nil {
			return err
		}
	}
}

func (s store1) ObjectExists(ctx context.Context, r *velero.ObjectExistsRequest) (*velero.ObjectExistsResponse, error) {
	if _, err := s.behaveAs(ctx, r.GetPlugin(), nil); err != nil {
		return nil, err
	}
	_, err := os.Stat(s.store.objectPath(r.GetBucket(), r.GetKey()))
	return &velero.ObjectExistsResponse{Exists: err == nil}, nil
}

func (s store1) GetObject(r *velero.GetObjectRequest, stream grpc.ServerStreamingServer[velero.Bytes]) error {
	body, err := os.ReadFile(s.store.objectPath(r.GetBucket(), r.GetKey()))
	if err != nil {
		return errors.New("no such key")
	}
	for len(body) > 0 {
		n := min(16384, len(body))
		if err := stream.Send(&velero.Bytes{Data: body[:n]}); err != nil {
			return err
		}
		body = body[n:]
		if _, err := s.behaveAs(stream.Context(), r.GetPlugin(), nil); err != nil {
			return err
		}
	}
	return nil
}

func (s store1) ListCommonPrefixes(_ context.Context, r *velero.ListCommonPrefixesRequest) (*velero.ListCommonPrefixesResponse, error) {
	return &velero.ListCommonPrefixesResponse{Prefixes: []string{r.GetPrefix() + "a" + r.GetDelimiter()}}, nil
}

func (s store1) ListObjects(ctx context.Context, r *velero.ListObjectsRequest) (*velero.ListObjectsResponse, error) {
	item, err := s.behaveAs(ctx, r.GetPlugin(), []byte("key"))
	return &velero.ListObjectsResponse{Keys: []string{r.GetPrefix() + string(item)}}, err
}

func (s store1) DeleteObject(_ context.Context, r *velero.DeleteObjectRequest) (*velero.Empty, error) {
	return &velero.Empty{}, os.Remove(s.store.objectPath(r.GetBucket(), r.GetKey()))
}

func (s store1) CreateSignedURL(_ context.Context, r *velero.CreateSignedURLRequest) (*velero.CreateSignedURLResponse, error) {
	return &velero.CreateSignedURLResponse{Url: fmt.Sprintf("https://%s/%s?ttl=%d", r.GetBucket(), r.GetKey(), r.GetTtl())}, nil
}
