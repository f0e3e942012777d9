package directorydriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bindMount makes a directory or file appear at another one.
func bindMount(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s for reading: %w", target, err), removeMount(target))
	}
	return nil
}

// removeMount undoes bindMount. What is not mounted is no error.
func removeMount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// attachDevice returns a loop device whose content is a file. The kernel detaches it when the last process that has
// it open closes it or ends: none outlives the driver and those who use it.
func attachDevice(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = control.Close() }()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}} //nolint:gosec // a file descriptor
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // another process has taken it
			return nil, fmt.Errorf("attach %s to %s: %w", path, device.Name(), err)
		}
	}
}

// place identifies a file on this machine.
type place struct{ device, inode uint64 }

// ReleaseDevices frees the loop devices of the volumes in the directory of a driver that has ended: a kubelet attaches
// another loop device to each block volume that it maps, which outlives a kubelet that is killed and holds the first.
func ReleaseDevices(dir string) error {
	volumes, err := filepath.Glob(filepath.Join(dir, "volumes", "*"))
	if err != nil || len(volumes) == 0 {
		return err
	}
	own := map[place]bool{}
	for _, path := range volumes {
		var status unix.Stat_t
		if err := unix.Stat(path, &status); err != nil {
			return err
		}
		own[place{status.Dev, status.Ino}] = true
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return err
	}
	var errs error
	ours, above := map[uint64]bool{}, map[string]uint64{} // device numbers; by path, the device number of what is below
	for _, a := range attached {
		path := "/dev/" + filepath.Base(filepath.Dir(a))
		errs = errors.Join(errs, withDevice(path, func(fd int) error {
			info, err := unix.IoctlLoopGetStatus64(fd)
			if err != nil {
				return err
			}
			var status unix.Stat_t
			if err := unix.Fstat(fd, &status); err != nil {
				return err
			}
			if own[place{info.Device, info.Inode}] {
				ours[status.Rdev] = true
			} else if info.Rdevice != 0 {
				above[path] = info.Rdevice
			}
			return nil
		}))
	}
	for path, below := range above {
		if ours[below] {
			errs = errors.Join(errs, withDevice(path, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) }))
		}
	}
	return errs
}

// withDevice calls what with an open loop device, unless it has been detached meanwhile.
func withDevice(path string, what func(fd int) error) error {
	device, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	if err := what(int(device.Fd())); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("loop device %s: %w", path, err)
	}
	return nil
}
