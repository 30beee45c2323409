// One binary with every role of a Kubernetes control plane, for tests.
//
// The role is the first argument: kube-apiserver, kube-controller-manager,
// kube-scheduler, etcd or kubectl. One binary shares the packages that the
// roles have in common, so that it builds in a third of the time and the
// space of five.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var roles = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: nhc-kube kube-apiserver|kube-controller-manager|kube-scheduler|etcd|kubectl ...")
		os.Exit(2)
	}
	role := os.Args[1]
	// The roles read os.Args themselves (klog, cobra), as if each had been
	// called by its own name.
	os.Args = append([]string{role}, os.Args[2:]...)
	if role == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := roles[role]
	if !known {
		fmt.Fprintf(os.Stderr, "nhc-kube: no role named %q\n", role)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
