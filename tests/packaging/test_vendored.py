"""What the console carries along of others is what its lock pins, with its licence, and reaches every package."""

import shutil

from nhc_release import vendored


def test_each_file_is_as_it_was_published_and_none_is_without_a_pin():
    assert vendored.differing() == []
    for package in vendored.locked():
        assert package.integrity.startswith("sha512-"), package.name
        assert any(name.endswith(".LICENSE") for name in package.files), package.name
    assert "registry" not in (vendored.PLACE / "lock.json").read_text(encoding="utf-8")


def test_a_file_that_somebody_changed_is_named(tmp_path):
    place = tmp_path / "vendor"
    shutil.copytree(vendored.PLACE, place)
    with open(place / "uPlot.iife.min.js", "a", encoding="utf-8") as file:
        file.write("\n")
    (place / "stranger.js").write_text("", encoding="utf-8")
    (place / "uPlot.LICENSE").unlink()
    assert vendored.differing(place) == ["stranger.js", "uPlot.LICENSE", "uPlot.iife.min.js"]
