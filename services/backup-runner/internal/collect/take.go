package collect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// takeItem adds the object in s.meta to the part.
func (s *unitSink) takeItem(item jsonlist.Item) error {
	if err := s.keepPosition(); err != nil {
		return err
	}
	found, complete := s.references.Find(s.meta.Namespace, item.Raw)
	it := part.Item{
		GVK: s.u.Res.Kind, Resource: s.u.Res.Name, Preferred: true, Meta: &s.meta,
		Raw: item.Raw, Envelope: item.Envelope, HasTypeMeta: item.HasTypeMeta, Spaced: item.Spaced, References: found,
		Extra: plan.IsExtra(s.w.cfg.Filter, s.gr, &s.meta),
	}
	if s.revision != s.main {
		it.Cut = s.revision
	}
	err := s.page.part.Add(it)
	if errors.Is(err, part.ErrInvalidItem) {
		return s.noteProblem(s.logEntry("object cannot be stored", err))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", partwriter.ObjectKey(s.meta.Namespace, s.meta.Name), err)
	}
	s.page.items++
	if s.meta.Namespace != "" {
		s.inNamespace(s.meta.Namespace)
	}
	if !complete {
		if err := s.noteEntry(partwriter.ShortenedEntry(s.gr, s.meta.Namespace, s.meta.Name)); err != nil {
			return err
		}
	}
	if s.gr == plan.Pods || s.gr == plan.Claims || s.gr == plan.Volumes {
		return s.noteRemarks(item.Raw)
	}
	return nil
}

func (s *unitSink) inNamespace(ns string) {
	if _, ok := s.page.namespaces[ns]; ok {
		return
	}
	if s.page.namespaces == nil {
		s.page.namespaces = map[string]struct{}{}
	}
	s.page.namespaces[strings.Clone(ns)] = struct{}{}
}

// noteRemarks notes the messages about the object in s.meta, which is stored.
func (s *unitSink) noteRemarks(raw []byte) error {
	remarks, info := s.w.cfg.Remarks.Of(s.gr, &s.meta, raw)
	if info != nil {
		s.page.volumes = append(s.page.volumes, *info)
	}
	for _, e := range remarks {
		if e.Level == joblog.Warning {
			s.page.warnings++
		} else {
			s.page.errors++
		}
		if err := s.noteEntry(e); err != nil {
			return err
		}
	}
	return nil
}

// logEntry is a log entry about the object in s.meta.
func (s *unitSink) logEntry(message string, err error) joblog.Entry {
	return partwriter.EntryAbout(s.gr, s.meta.Namespace, s.meta.Name, message, err)
}

// noteProblem notes a counted error on this page.
func (s *unitSink) noteProblem(e joblog.Entry) error {
	s.page.errors++
	e.Level = joblog.Error
	return s.noteEntry(e)
}

func (s *unitSink) noteEntry(e joblog.Entry) error {
	if err := s.keepPosition(); err != nil {
		return err
	}
	return s.w.out.Note(e)
}
