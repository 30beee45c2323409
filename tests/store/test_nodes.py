"""What a node is, as clusters and inventories describe it."""

from nhc.store import nodes


def test_a_description_leaves_what_it_does_not_speak_of(store):
    with store.write() as connection:
        nodes.describe(connection, [
            nodes.NodeDescription("n2", kind="h100", groups={"rack": "r1"}, address="10.0.0.2"),
            nodes.NodeDescription("n1", kind="h100", groups={"rack": "r1"}, address="10.0.0.1"),
        ])  # fmt: skip
    with store.write() as connection:
        nodes.describe(
            connection,
            [
                nodes.NodeDescription("n1", address="10.0.0.9"),
                nodes.NodeDescription("n2", kind="h200"),
                nodes.NodeDescription("n3"),
                nodes.NodeDescription("n2"),
            ],
        )

    with store.read() as connection:
        found = {row.node: (row.kind, row.groups, row.address) for row in nodes.list_nodes(connection)}
    assert found == {
        "n1": ("h100", {"rack": "r1"}, "10.0.0.9"),
        "n2": ("h200", {"rack": "r1"}, "10.0.0.2"),
        "n3": ("", {}, ""),
    }
