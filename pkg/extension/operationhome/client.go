package operationhome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

// Peers finds instances by the names of their Leases; claim.Peers is one.
type Peers interface {
	// Find returns the gRPC address of the instance, or that it has ended. An error does not mean that
	// it has.
	Find(ctx context.Context, instance string) (address string, gone bool, err error)
}

// Client calls the instances whose plugin processes run operations, and connects to them for other calls. Safe for concurrent use.
type Client struct {
	peers Peers
	dial  func(instance, address string) (*grpc.ClientConn, error)
	own   *Server // nil for a service without processes

	mu     sync.Mutex
	conns  map[string]connection // by instance
	closed bool
}

type connection struct {
	address string
	*grpc.ClientConn
}

// NewClient returns a Client that connects with dial, but for the processes of own, which is nil for a
// service without. Close ends its connections.
func NewClient(peers Peers, dial func(instance, address string) (*grpc.ClientConn, error), own *Server) *Client {
	return &Client{peers: peers, dial: dial, own: own, conns: map[string]connection{}}
}

// isOwnInstance reports whether an instance is that of this process.
func (c *Client) isOwnInstance(instance string) bool {
	return c.own != nil && c.own.Instance == instance
}

// Close ends the connections, and calls under way with them.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for instance := range c.conns {
		c.dropConnection(instance)
	}
}

// Run closes the Client once ctx has ended, and returns nil.
func (c *Client) Run(ctx context.Context) error {
	<-ctx.Done()
	c.Close()
	return nil
}

// dropConnection closes and removes a connection. The caller holds the lock.
func (c *Client) dropConnection(instance string) {
	if conn, ok := c.conns[instance]; ok {
		_ = conn.Close() // nothing is lost with it
		delete(c.conns, instance)
	}
}

// connectInstance returns a client of the instance; its errors are those of ConnectInstance.
func (c *Client) connectInstance(ctx context.Context, instance string) (operationv1.OperationServiceClient, error) {
	conn, err := c.ConnectInstance(ctx, instance)
	if err != nil {
		return nil, err
	}
	return operationv1.NewOperationServiceClient(conn), nil
}

// ConnectInstance returns a connection to the instance, which the Client keeps and closes. The error wraps ErrGone once
// that has ended.
func (c *Client) ConnectInstance(ctx context.Context, instance string) (grpc.ClientConnInterface, error) {
	if c.isOwnInstance(instance) {
		return nil, fmt.Errorf("%w: it is no process of this instance any more", ErrGone)
	}
	address, gone, err := c.peers.Find(ctx, instance)
	if err != nil {
		return nil, fmt.Errorf("find instance %s: %w", instance, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, known := c.conns[instance]
	if known && (gone || conn.address != address) {
		c.dropConnection(instance)
		known = false
	}
	switch {
	case gone:
		return nil, fmt.Errorf("%w: instance %s has ended", ErrGone, instance)
	case c.closed:
		return nil, context.Canceled
	case known:
		return conn, nil
	case address == "":
		return nil, fmt.Errorf("instance %s does not say where it can be asked: %w", instance, errgrpc.ErrUnavailable)
	}
	made, err := c.dial(instance, address)
	if err != nil {
		return nil, fmt.Errorf("connect to instance %s: %w", instance, err)
	}
	c.conns[instance] = connection{address, made}
	return made, nil
}

// Home follows the operations in one process of an instance.
type Home struct {
	client            *Client
	instance, process string
}

var _ action.Operations = (*Home)(nil)

// At returns the process with this start ID of the instance. Its errors wrap ErrGone once the
// process or the instance has ended; others are those of action.Operations.
func (c *Client) At(instance, process string) action.Operations {
	if c.isOwnInstance(instance) && c.own.Processes.Alive(process) {
		return c.own.Processes
	}
	return &Home{client: c, instance: instance, process: process}
}

func (h *Home) wireOperation(op action.Operation) *operationv1.InProcessOperation {
	return &operationv1.InProcessOperation{ExpectedInstanceId: h.instance, ProcessId: h.process, Kind: op.Kind, Action: op.Action, OperationId: op.ID}
}

// callError is the error of a call.
func (h *Home) callError(err error) error {
	if err == nil {
		return nil
	}
	switch errgrpc.Reason(err) {
	case reasonProcessGone:
		return fmt.Errorf("%w: process %.64s of instance %s has ended", ErrGone, h.process, h.instance)
	case reasonOperationUnknown:
		return fmt.Errorf("%w: %w", action.ErrUnknownOperation, errgrpc.FromStatus(err))
	case reasonActionUnknown:
		return fmt.Errorf("%w: %w", action.ErrUnknownAction, errgrpc.FromStatus(err))
	}
	return fmt.Errorf("instance %s: %w", h.instance, errgrpc.FromStatus(err))
}

// Progress implements action.Operations.
func (h *Home) Progress(ctx context.Context, op action.Operation, job []byte) (action.Progress, error) {
	api, err := h.client.connectInstance(ctx, h.instance)
	if err != nil {
		return action.Progress{}, err
	}
	p, err := api.GetProgress(ctx, &operationv1.GetProgressRequest{Operation: h.wireOperation(op), Job: job})
	if err != nil {
		return action.Progress{}, h.callError(err)
	}
	return action.Progress{
		Done: p.GetDone(), Err: p.GetError(), Completed: max(p.GetCompleted(), 0), Total: max(p.GetTotal(), 0), Units: p.GetUnits(),
		Description: p.GetDescription(), Started: timeOrZero(p.GetStartTime()), Updated: timeOrZero(p.GetUpdateTime()),
	}, nil
}

// Cancel implements action.Operations.
func (h *Home) Cancel(ctx context.Context, op action.Operation, job []byte, grace time.Duration) (bool, error) {
	api, err := h.client.connectInstance(ctx, h.instance)
	if err != nil {
		return false, err
	}
	req := &operationv1.CancelRequest{Operation: h.wireOperation(op), Job: job}
	if grace > 0 {
		req.Grace = durationpb.New(grace)
	}
	answer, err := api.Cancel(ctx, req)
	return answer.GetAccepted(), h.callError(err)
}

// Logs implements action.Operations.
func (h *Home) Logs(ctx context.Context, op action.Operation, job []byte, since time.Time, follow bool) iter.Seq2[action.LogLine, error] {
	return func(yield func(action.LogLine, error) bool) {
		ctx, end := context.WithCancel(ctx)
		defer end() // also when the caller has read enough
		err := h.streamLogs(ctx, &operationv1.StreamLogsRequest{Operation: h.wireOperation(op), Job: job, Since: timestampOrNil(since), Follow: follow}, func(line action.LogLine) bool {
			return yield(line, nil)
		})
		if err != nil {
			yield(action.LogLine{}, err)
		}
	}
}

func (h *Home) streamLogs(ctx context.Context, req *operationv1.StreamLogsRequest, take func(action.LogLine) bool) error {
	api, err := h.client.connectInstance(ctx, h.instance)
	if err != nil {
		return err
	}
	stream, err := api.StreamLogs(ctx, req)
	if err != nil {
		return h.callError(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return h.callError(err)
		}
		line := m.GetLine()
		if !take(action.LogLine{Time: timeOrZero(line.GetTime()), Level: line.GetLevel(), Message: line.GetMessage(), Fields: line.GetFields()}) {
			return nil
		}
	}
}

// Forget lets the instance stop keeping the operation's process for it.
func (c *Client) Forget(ctx context.Context, instance, process string, op action.Operation) error {
	if c.isOwnInstance(instance) {
		c.own.Processes.Forget(op)
		return nil
	}
	api, err := c.connectInstance(ctx, instance)
	if err != nil {
		return err
	}
	h := &Home{client: c, instance: instance, process: process}
	_, err = api.Forget(ctx, &operationv1.ForgetRequest{Operation: h.wireOperation(op)})
	return h.callError(err)
}

func timeOrZero(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
