package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kopia/kopia/repo"
)

// What is wrong with a repository. Errors of this package wrap these with the cause.
var (
	// ErrAbsent means that there is no repository at the place.
	ErrAbsent = errors.New("there is no kopia repository")
	// ErrForeign means that objects are in the way which no repository explains.
	ErrForeign = errors.New("the prefix of the repository is not empty, but holds no kopia.repository")
	// ErrPassword means that the password is not the repository's.
	ErrPassword = errors.New("wrong repository password")
	// ErrFormat means that the repository has a format that this version cannot read.
	ErrFormat = errors.New("the repository has another format")
	// ErrLocked means that another program changes the format of the repository and has locked it.
	ErrLocked = errors.New("the repository is locked while its format is upgraded")
	// ErrDamaged means that something in the repository is missing or is not what was written.
	ErrDamaged = errors.New("the repository is damaged")
	// ErrNoSnapshot means that the repository does not have the snapshot.
	ErrNoSnapshot = errors.New("the repository does not have the snapshot")
	// ErrIncomplete means that a snapshot is a checkpoint or was canceled: it lacks data.
	ErrIncomplete = errors.New("the snapshot is incomplete")
	// ErrNoTimes means that the object store does not say when objects were written, which kopia needs
	// to know which of them are still in use.
	ErrNoTimes = errors.New("the object store has no times of objects; locations behind a plugin cannot hold volume data")
)

// StoreError is a failed call of the object store. It says nothing about the repository.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "object store: " + e.Err.Error() }

// Unwrap returns the error of the store.
func (e *StoreError) Unwrap() error { return e.Err }

// ReadError classifies an error of reading the repository's content: it is returned as it is if the
// object store failed or ctx ended, else it wraps ErrDamaged, since what was written cannot be read.
func ReadError(ctx context.Context, err error) error {
	var store *StoreError
	if err == nil || ctx.Err() != nil || errors.As(err, &store) || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// formatTexts are what kopia 0.22 says, without a type of error, of formats that it does not know.
var formatTexts = []string{"does not support feature", "error creating format provider", "derive format encryption key"}

// openError classifies an error of opening a repository whose kopia.repository could be read.
func openError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, repo.ErrInvalidPassword):
		return ErrPassword
	case errors.Is(err, repo.ErrRepositoryUnavailableDueToUpgradeInProgress):
		return ErrLocked
	}
	for _, text := range formatTexts {
		if strings.Contains(err.Error(), text) {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
	}
	return ReadError(ctx, err)
}
