package control_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protodelim"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// fileStream keeps what is sent.
type fileStream struct {
	grpc.ServerStreamingServer[volumev1.ReadFileResponse]
	ctx  context.Context
	sent []byte
}

func (s *fileStream) Context() context.Context { return s.ctx }

func (s *fileStream) Send(m *volumev1.ReadFileResponse) error {
	s.sent = append(s.sent, m.GetData()...)
	return nil
}

func newFilesBed(t *testing.T) *bed {
	return newBed(t, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "b"}, Spec: velerov1.BackupSpec{StorageLocation: "default"}})
}

// beginRead calls ReadFile.
func (b *bed) beginRead(ctx context.Context, backup string) (*fileStream, <-chan error) {
	stream, ended := &fileStream{ctx: ctx}, make(chan error, 1)
	s := &control.Server{Controller: b.controller}
	go func() {
		ended <- s.ReadFile(&volumev1.ReadFileRequest{Backup: backup, Volume: &volumev1.VolumeSelector{Namespace: "shop", Claim: "data"}, Path: "-a\nb"}, stream)
	}()
	return stream, ended
}

func (b *bed) filesPods() []corev1.Pod {
	b.t.Helper()
	pods := &corev1.PodList{}
	require.NoError(b.t, b.client.List(b.t.Context(), pods, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueFiles}))
	return pods.Items
}

// filesPod waits for the mover Pod and its Secret.
func (b *bed) filesPod() *corev1.Pod {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		pods := b.filesPods()
		return len(pods) == 1 && b.secret(pods[0].Name) != nil
	}, patience, look)
	return &b.filesPods()[0]
}

func TestAFileIsReadByAMoverOfItsOwn(t *testing.T) {
	whole := func(_ []string, out io.Writer) (string, error) {
		for _, data := range []string{"con", "tent", ""} {
			if _, err := protodelim.MarshalTo(out, &volumev1.ReadFileResponse{Data: []byte(data)}); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	for name, c := range map[string]struct {
		answer func([]string, io.Writer) (string, error)
		want   string
		code   codes.Code
		text   string
	}{
		"whole": {whole, "content", codes.OK, ""},
		"without an end": {func(_ []string, out io.Writer) (string, error) {
			_, err := protodelim.MarshalTo(out, &volumev1.ReadFileResponse{Data: []byte("con")})
			return "", err
		}, "con", codes.Unavailable, "broke"},
		"cut": {func(_ []string, out io.Writer) (string, error) {
			_, err := out.Write([]byte{100, 18})
			return "", err
		}, "", codes.Unavailable, "broke"},
		"refused by the mover": {func([]string, io.Writer) (string, error) {
			return "{\"level\":\"WARN\"}\nerror: \"x\" in the volume: not found", exec.CodeExitError{Err: errors.New("exit"), Code: 64 + int(codes.NotFound)}
		}, "", codes.NotFound, `"x" in the volume: not found`},
		"killed": {func([]string, io.Writer) (string, error) {
			return "", exec.CodeExitError{Err: errors.New("exit"), Code: 137}
		}, "", codes.Unavailable, "mover Pod files-"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFilesBed(t)
			var command []string
			b.answer = func(cmd []string, out io.Writer) (string, error) {
				command = cmd
				return c.answer(cmd, out)
			}
			stream, ended := b.beginRead(t.Context(), "b")
			pod := b.filesPod()
			require.Equal(t, []string{"files", "wait", "--for", "2h0m0s"}, pod.Spec.Containers[0].Args)
			require.Equal(t, int64(7200), *pod.Spec.ActiveDeadlineSeconds)
			b.run(pod.Name)
			err := b.awaitEnd(ended)
			st, _ := errgrpc.Status(err)
			require.Equal(t, c.code, st.Code(), "%v", err)
			require.Contains(t, st.Message(), c.text)
			require.Equal(t, c.want, string(stream.sent))
			require.Equal(t, []string{server, pod.Name, moverpod.Container, "/proc/1/exe", "files", "read"}, command[:6])
			require.Equal(t, []string{"--backup=b", "--claim=data", "--pod=", "--volume=", "--path=-a\nb"}, command[len(command)-5:])
			require.Contains(t, command, "shop")
			b.requireNoMover(pod.Name)
		})
	}
}

func TestFilesThatNoMoverReads(t *testing.T) {
	b := newFilesBed(t)
	_, ended := b.beginRead(t.Context(), "none")
	require.ErrorIs(t, <-ended, errgrpc.ErrNotFound)
	require.Empty(t, b.filesPods(), "there is no such backup")

	_, ended = b.beginRead(t.Context(), "b")
	pod := b.filesPod()
	b.wait(pod.Name, "InvalidImageName")
	require.ErrorContains(t, b.awaitEnd(ended), "does not start: InvalidImageName: because")
	b.requireNoMover(pod.Name)

	_, ended = b.beginRead(t.Context(), "b")
	pod = b.filesPod()
	b.clock.Step(5*time.Minute + time.Second)
	require.ErrorIs(t, b.awaitEnd(ended), errgrpc.ErrUnavailable, "no node takes it")
	b.requireNoMover(pod.Name)

	ctx, cancel := context.WithCancel(t.Context())
	_, ended = b.beginRead(ctx, "b")
	pod = b.filesPod()
	cancel()
	require.ErrorIs(t, b.awaitEnd(ended), context.Canceled)
	b.requireNoMover(pod.Name)

	b.configure(func(c *control.Config) { c.Movers.Image = "" })
	_, ended = b.beginRead(t.Context(), "b")
	require.ErrorIs(t, <-ended, errgrpc.ErrPrecondition)
}

// A call whose service was killed leaves its mover, which ends by itself.
func TestLeftMoversOfFilesAreRemoved(t *testing.T) {
	b := newFilesBed(t)
	for _, name := range []string{"files-runs", "files-ended", "files-waits"} {
		pod, _ := moverpod.BuildFilesPod(moverpod.Settings{Namespace: server}, name, moverpod.Files{}, time.Hour)
		pod.CreationTimestamp = metav1.NewTime(b.clock.Now())
		require.NoError(t, b.client.Create(t.Context(), pod))
	}
	b.run("files-runs")
	b.terminate("files-ended", corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137})
	require.NoError(t, b.controller.RemoveLeftFiles(t.Context()))
	require.NotNil(t, b.mover("files-runs"))
	require.Nil(t, b.mover("files-ended"))
	require.NotNil(t, b.mover("files-waits"), "its call may go on")
	b.clock.Step(2*time.Hour + time.Second)
	require.NoError(t, b.controller.RemoveLeftFiles(t.Context()))
	require.Nil(t, b.mover("files-waits"), "no node ever took it, so it does not end by itself")
	require.NotNil(t, b.mover("files-runs"), "the kubelet ends it")
}
