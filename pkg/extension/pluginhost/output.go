package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// maxLine is how long a line of a plugin may be; longer ones are logged in pieces, without being
// understood.
const maxLine = 64 << 10

// lineUnit is how many bytes of a line count as one line for the limit on lines.
const lineUnit = 4 << 10

// output takes what a process writes to its stderr, line by line, and logs it again: lines in the
// JSON of hclog, which Velero's framework writes, with their level and fields, all others as debug.
type output struct {
	ctx     context.Context // for the log's handler only
	handler slog.Handler
	clock   clock.PassiveClock
	limit   *rate.Limiter

	mu        sync.Mutex
	rest      []byte // of a line that has not ended
	cut       bool   // rest continues a line of which pieces were logged
	dropped   int    // lines over the limit since the last one that was logged
	worst     slog.Level
	crashLine string // the line in which a dying Go process reports why
}

func newOutput(ctx context.Context, log *slog.Logger, c clock.PassiveClock, l Limits) *output {
	return &output{ctx: context.WithoutCancel(ctx), handler: log.Handler(), clock: c, limit: rate.NewLimiter(rate.Limit(l.LogRate), l.LogBurst)}
}

// Write never fails: what cannot be logged is counted.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		at := bytes.IndexByte(p, '\n')
		if at < 0 {
			o.rest = append(o.rest, p...)
			o.logOverlong()
			return n, nil
		}
		if len(o.rest) == 0 {
			o.logWholeLine(p[:at])
		} else {
			o.rest = append(o.rest, p[:at]...)
			o.logOverlong()
			o.logWholeLine(o.rest)
			o.rest = o.rest[:0]
		}
		p = p[at+1:]
	}
	return n, nil
}

// logOverlong logs the pieces of a line that is too long to wait for its end.
func (o *output) logOverlong() {
	for len(o.rest) > maxLine {
		o.cut = true
		o.logPlainLine(o.rest[:maxLine])
		o.rest = append(o.rest[:0], o.rest[maxLine:]...)
	}
}

// logWholeLine logs a line that has ended.
func (o *output) logWholeLine(line []byte) {
	cut := o.cut
	o.cut = false
	line = bytes.TrimRight(line, "\r")
	if len(line) == 0 {
		return
	}
	var fields map[string]any
	if cut || len(line) > maxLine || line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		o.logPlainLine(line)
		return
	}
	message, _ := fields["@message"].(string)
	level, _ := fields["@level"].(string)
	o.logWithinLimit(len(line), levelOf(level), message, logAttributes(fields))
}

func (o *output) logPlainLine(line []byte) {
	text := strings.ToValidUTF8(string(line[:min(len(line), maxLine)]), "�")
	if o.crashLine == "" && (strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")) {
		o.crashLine = clipText(text)
	}
	o.logWithinLimit(len(text), slog.LevelDebug, text, nil)
}

// logWithinLimit logs a line, as far as the limit has room for its size.
func (o *output) logWithinLimit(size int, level slog.Level, message string, attrs []slog.Attr) {
	now := o.clock.Now()
	if !o.limit.AllowN(now, min(1+size/lineUnit, o.limit.Burst())) {
		o.dropped++
		o.worst = max(o.worst, level)
		return
	}
	o.reportDropped()
	if !o.handler.Enabled(o.ctx, level) {
		return
	}
	record := slog.NewRecord(now, level, message, 0)
	record.AddAttrs(attrs...)
	_ = o.handler.Handle(o.ctx, record) // there is no other place to report a log that fails
}

// reportDropped logs how many lines were over the limit, as gravely as the gravest of them: a
// plugin's errors count.
func (o *output) reportDropped() {
	if o.dropped == 0 {
		return
	}
	record := slog.NewRecord(o.clock.Now(), max(o.worst, slog.LevelWarn), "plugin logs too much: lines were dropped", 0)
	record.AddAttrs(slog.Int("lines", o.dropped))
	o.dropped, o.worst = 0, 0
	_ = o.handler.Handle(o.ctx, record)
}

// endOutput logs the remaining output when the process has ended, and returns the reason of a crash in
// it; empty when there is none.
func (o *output) endOutput() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logWholeLine(o.rest)
	o.rest = nil
	o.reportDropped()
	return o.crashLine
}

func levelOf(name string) slog.Level {
	switch strings.ToLower(name) {
	case "info":
		return slog.LevelInfo
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "panic":
		return slog.LevelError
	default:
		return slog.LevelDebug
	}
}

// logAttributes returns the fields that are not the line's own.
func logAttributes(fields map[string]any) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		switch key {
		case "@message", "@level", "@timestamp", "@logSourceSetBy", "@module", "@caller", "time", "timestamp", "level", "msg":
		default:
			attrs = append(attrs, slog.Any(key, fields[key]))
		}
	}
	return attrs
}
