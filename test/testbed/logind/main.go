// logind ADDRESS: stands in for systemd-logind on a bus of its own, as far as the kubelet asks it: it grants inhibitors and
// announces shutdowns. `shutdown` on stdin begins one, `cancel` takes it back. It says on stdout when it is `ready`, and when an
// inhibitor is `granted` and `released`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	name    = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
)

type login struct{}

// Inhibit returns the end of a pipe: what it inhibits waits until all copies of it are closed.
func (login) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fmt.Println("granted", what, who, mode)
	go func() {
		// By then the reply has been sent.
		time.Sleep(time.Second)
		write.Close()
		read.Read(make([]byte, 1))
		read.Close()
		fmt.Println("released", who)
	}()
	return dbus.UnixFD(write.Fd()), nil
}

type properties struct{}

// Get answers an hour for InhibitDelayMaxUSec: the kubelet would otherwise write to /etc.
func (properties) Get(of, property string) (dbus.Variant, *dbus.Error) {
	return dbus.MakeVariant(uint64(3600 * 1000 * 1000)), nil
}

func main() {
	bus, err := dbus.Connect(os.Args[1])
	check(err)
	check(bus.Export(login{}, path, manager))
	check(bus.Export(properties{}, path, "org.freedesktop.DBus.Properties"))
	reply, err := bus.RequestName(name, dbus.NameFlagDoNotQueue)
	check(err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		check(fmt.Errorf("%s has another owner", name))
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		check(bus.Emit(path, manager+".PrepareForShutdown", lines.Text() == "shutdown"))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
